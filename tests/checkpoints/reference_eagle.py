"""EAGLE-3 written a second time, from its formulas: the whole sequence at every step, no cache, one
session, nothing shared with the drafter but the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F

from actors.drafters.learned.eagle_model import EagleSpec

Weights = Mapping[str, torch.Tensor]


class ReferenceEagle:
    """weights: fp64, under speculators' names, with `embed_tokens` and `lm_head`. ids: target ids
    of the head's rows."""

    def __init__(self, spec: EagleSpec, weights: Weights, ids: torch.Tensor | None) -> None:
        self.spec, self.w, self.ids = spec, weights, ids

    def greedy(self, tokens: Sequence[int], features: torch.Tensor, depth: int) -> list[int]:
        """Drafts after `tokens` (n of them), given the target's features of rows 0 … n-2."""
        if self.spec.slots:
            return self._slots(tokens, features, depth)
        states = [self._fuse(row) for row in features]
        text, drafts = list(tokens), list[int]()
        for _ in range(depth):
            z = self._stack(torch.stack(states), text[1:])[-1]
            normed = self._norm(z, "norm")
            drafts.append(self._choose(normed))
            text.append(drafts[-1])
            states.append(normed if self.spec.norm_output else z)
        return drafts

    def _slots(self, tokens: Sequence[int], features: torch.Tensor, depth: int) -> list[int]:
        masked = self._fuse(self.w["mask_hidden"].flatten())
        states = [self._fuse(row) for row in features] + [masked] * (depth - 1)
        z = self._stack(torch.stack(states), [*tokens[1:], *[self.spec.mask_token] * (depth - 1)])
        return [self._choose(self._norm(row, "norm")) for row in z[-depth:]]

    def _choose(self, normed: torch.Tensor) -> int:
        row = int((self.w["lm_head.weight"] @ normed).argmax())
        return row if self.ids is None else int(self.ids[row])

    def _fuse(self, row: torch.Tensor) -> torch.Tensor:
        """A row of the target's features -> what takes its place in the draft."""
        if self.spec.norm_before_fc:
            row = self._norm(row, "input_norm")
        if self.spec.fc_norm:
            parts = row.split(self.spec.target_hidden)
            row = torch.cat([self._norm(p, f"fc_norm.{i}") for i, p in enumerate(parts)])
        return self.w["fc.weight"] @ row

    def _stack(self, states: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
        """States of rows and the tokens after them -> the last layer's output [rows, hidden]."""
        embedded = self.w["embed_tokens.weight"][list(tokens)]
        x = states
        for i in range(self.spec.layers):
            at = f"layers.{i}."
            if i == 0:
                feature = self._norm(x, f"{at}hidden_norm")
                inner = torch.cat((self._norm(embedded, f"{at}input_layernorm"), feature), -1)
                x = feature if self.spec.norm_before_residual else x
            else:
                inner = self._norm(x, f"{at}input_layernorm")
            x = x + self._attention(inner, at)
            y = self._norm(x, f"{at}post_attention_layernorm")
            gate, up = (y @ self.w[f"{at}mlp.{n}_proj.weight"].T for n in ("gate", "up"))
            x = x + (F.silu(gate) * up) @ self.w[f"{at}mlp.down_proj.weight"].T
        return x

    def _attention(self, x: torch.Tensor, at: str) -> torch.Tensor:
        layer, rows = self.spec.layer, x.shape[0]
        heads: dict[str, torch.Tensor] = {}
        for part, count in (("q", layer.heads), ("k", layer.kv_heads), ("v", layer.kv_heads)):
            made = (x @ self.w[f"{at}self_attn.{part}_proj.weight"].T).view(rows, count, -1)
            if layer.qk_norm and part != "v":
                made = self._norm(made, f"{at}self_attn.{part}_norm")
            if part != "v":
                made = rotate(made)
            heads[part] = made.repeat_interleave(layer.heads // count, 1)
        scores = torch.einsum("ihd,jhd->hij", heads["q"], heads["k"]) / layer.head_dim**0.5
        later = torch.ones(rows, rows, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        out = torch.einsum("hij,jhd->ihd", weights, heads["v"]).reshape(rows, -1)
        return out @ self.w[f"{at}self_attn.o_proj.weight"].T

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        scale = (x.square().mean(-1, keepdim=True) + self.spec.layer.eps).sqrt()
        return x / scale * self.w[f"{name}.weight"]


def rotate(x: torch.Tensor, start: int = 0, base: float = 10000.0) -> torch.Tensor:
    """RoPE of x [rows, heads, dim] at positions start …, as complex numbers."""
    half = x.shape[-1] // 2
    frequency = base ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = (torch.arange(start, start + x.shape[0])[:, None].float() * frequency).double()
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(
        torch.ones_like(angle), angle
    ).unsqueeze(1)
    return torch.cat((turned.real, turned.imag), -1)
