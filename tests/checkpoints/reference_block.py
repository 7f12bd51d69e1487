"""DFlash and DSpark written out from their papers for one session, whole prefix at once: no cache,
no batch, no shared code with the drafters. Greedy."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from actors.drafters.learned.block_head import BlockHeadSpec

W = Mapping[str, torch.Tensor]


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rope(x: torch.Tensor, positions: torch.Tensor, theta: float, interleaved: bool) -> torch.Tensor:
    """x [rows, heads, dim]."""
    dim = x.shape[-1]
    out = torch.empty_like(x)
    for i in range(dim // 2):
        # frequencies and angles are fp32 everywhere
        frequency = 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.float) / dim))[i]
        angle = positions.float() * frequency
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + dim // 2)
        out[..., a] = x[..., a] * cos - x[..., b] * sin
        out[..., b] = x[..., b] * cos + x[..., a] * sin
    return out


def block_hidden(
    spec: BlockHeadSpec, w: W, embedding: torch.Tensor, features: torch.Tensor, ids: list[int]
) -> torch.Tensor:
    """Normed hidden states [len(ids), H] of a block after the context `features` [n, F]."""
    layer, eps = spec.block.layer, spec.block.layer.eps
    theta = float(layer.rope["rope_theta"])
    n = features.shape[0]
    context = norm(features @ w["fc.weight"].T, w["hidden_norm.weight"], eps)
    at_context, at_block = torch.arange(n), torch.arange(n, n + len(ids))
    at_all = torch.cat((at_context, at_block))
    x = embedding[ids]
    for i in range(spec.block.layers):
        p = f"layers.{i}."
        causal, window = spec.block.masks[i if len(spec.block.masks) > 1 else 0]
        u = norm(x, w[f"{p}input_layernorm.weight"], eps)
        rows = torch.cat((context, u))
        q = (u @ w[f"{p}self_attn.q_proj.weight"].T).view(-1, layer.heads, layer.head_dim)
        k = (rows @ w[f"{p}self_attn.k_proj.weight"].T).view(-1, layer.kv_heads, layer.head_dim)
        v = (rows @ w[f"{p}self_attn.v_proj.weight"].T).view(-1, layer.kv_heads, layer.head_dim)
        q = rope(norm(q, w[f"{p}self_attn.q_norm.weight"], eps), at_block, theta, layer.interleaved)
        k = rope(norm(k, w[f"{p}self_attn.k_norm.weight"], eps), at_all, theta, layer.interleaved)
        heads = []
        for head in range(layer.heads):
            group = head * layer.kv_heads // layer.heads
            score = q[:, head] @ k[:, group].T / math.sqrt(layer.head_dim)
            distance = at_block[:, None] - at_all[None, :]
            if causal:
                score = score.masked_fill(distance < 0, float("-inf"))
            if window:
                score = score.masked_fill(distance.abs() >= window, float("-inf"))
            heads.append(score.softmax(-1) @ v[:, group])
        x = x + torch.cat(heads, -1) @ w[f"{p}self_attn.o_proj.weight"].T
        u = norm(x, w[f"{p}post_attention_layernorm.weight"], eps)
        gate, up = u @ w[f"{p}mlp.gate_proj.weight"].T, u @ w[f"{p}mlp.up_proj.weight"].T
        x = x + (gate * torch.sigmoid(gate) * up) @ w[f"{p}mlp.down_proj.weight"].T
    return norm(x, w["norm.weight"], eps)


def drafts(
    spec: BlockHeadSpec,
    w: W,
    embedding: torch.Tensor,
    head: torch.Tensor,
    ids: torch.Tensor | None,
    features: torch.Tensor,
    anchor: int,
    depth: int,
) -> tuple[list[int], list[float]]:
    """Greedy drafts after `anchor`, and their confidences."""
    skip = 0 if spec.block.next_token else 1
    block = [anchor] + [spec.block.mask_token] * (depth + skip - 1)
    hidden = block_hidden(spec, w, embedding, features, block)[skip:]
    before, found, sure = anchor, list[int](), list[float]()
    state = torch.zeros(spec.markov.rank if spec.markov else 0, dtype=hidden.dtype)
    for h in hidden:
        logits = h @ head.T
        if spec.markov:
            e = w["markov_head.markov_w1.weight"][before]
            latent = e
            if spec.markov.kind == "gated":
                joined = torch.cat((h, e)) @ w["markov_head.gate_proj.weight"].T
                latent = torch.sigmoid(joined + w["markov_head.gate_proj.bias"]) * e
            elif spec.markov.kind == "rnn":
                joined = torch.cat((state, e, h)) @ w["markov_head.joint_proj.weight"].T
                g, c, o = (joined + w["markov_head.joint_proj.bias"]).chunk(3)
                g = torch.sigmoid(g)
                state = g * state + (1 - g) * torch.tanh(c)
                latent = torch.tanh(o)
            logits = logits + latent @ w["markov_head.markov_w2.weight"].T
            if spec.confidence:
                x = torch.cat((h, e)) if spec.confidence.rank else h
                score = x @ w["confidence_head.proj.weight"].T + w["confidence_head.proj.bias"]
                sure.append(float(torch.sigmoid(score)))
        place = int(logits.argmax())
        before = place if ids is None else int(ids[place])
        found.append(before)
    return found, sure
