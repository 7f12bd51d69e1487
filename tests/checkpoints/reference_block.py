"""DFlash and DSpark written out from their papers for one session, whole prefix at once: no cache,
no batch, no shared code with the drafters. Greedy."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from actors.drafters.learned.block_head import BlockHeadSpec
from actors.drafters.learned.spec import LayerSpec

W = Mapping[str, torch.Tensor]


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rope(x: torch.Tensor, positions: torch.Tensor, layer: LayerSpec) -> torch.Tensor:
    """x [rows, heads, dim]."""
    dim, interleaved = x.shape[-1], layer.interleaved
    theta, factor = float(layer.rope["rope_theta"]), float(layer.rope.get("factor", 1.0))
    out = torch.empty_like(x)
    for i in range(dim // 2):
        # frequencies and angles are fp32 everywhere
        frequency = 1.0 / (theta ** (torch.arange(0, dim, 2, dtype=torch.float) / dim))[i] / factor
        angle = positions.float() * frequency
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + dim // 2)
        out[..., a] = x[..., a] * cos - x[..., b] * sin
        out[..., b] = x[..., b] * cos + x[..., a] * sin
    return out


def convolved(x: torch.Tensor, base: torch.Tensor, delta: torch.Tensor, group: int) -> torch.Tensor:
    """One side of a convolution over one block; base [taps, H], delta [rows, taps, groups]."""
    out = torch.zeros_like(x)
    for i in range(x.shape[0]):
        for t in range(min(i + 1, base.shape[0])):
            kernel = base[t] + delta[i, t].repeat_interleave(group)
            out[i] += kernel * x[i - t]
    return out


def block_hidden(
    spec: BlockHeadSpec, w: W, embedding: torch.Tensor, features: torch.Tensor, ids: list[int]
) -> torch.Tensor:
    """Normed hidden states [len(ids), H] of a block after the context `features` [n, F]."""
    layer, eps = spec.block.layer, spec.block.layer.eps
    n, conv = features.shape[0], spec.block.conv
    context = norm(features @ w["fc.weight"].T, w["hidden_norm.weight"], eps)
    at_context, at_block = torch.arange(n), torch.arange(n, n + len(ids))
    at_all = torch.cat((at_context, at_block))
    x = embedding[ids] * spec.embed_scale
    for i in range(spec.block.layers):
        p = f"layers.{i}."
        causal, window = spec.block.masks[i if len(spec.block.masks) > 1 else 0]
        u = norm(x, w[f"{p}input_layernorm.weight"], eps)
        if conv:
            c = f"{p}attention_conv."
            delta = (u @ w[f"{c}kernel_projection.weight"].T).view(len(ids), 2, conv.taps, -1)
            u = convolved(u, w[f"{c}base_kernel"][0], delta[:, 0], conv.group)
        rows = torch.cat((context, u))
        q = (u @ w[f"{p}self_attn.q_proj.weight"].T).view(-1, layer.heads, layer.head_dim)
        k = (rows @ w[f"{p}self_attn.k_proj.weight"].T).view(-1, layer.kv_heads, layer.head_dim)
        v = (rows @ w[f"{p}self_attn.v_proj.weight"].T).view(-1, layer.kv_heads, layer.head_dim)
        q = rope(norm(q, w[f"{p}self_attn.q_norm.weight"], eps), at_block, layer)
        k = rope(norm(k, w[f"{p}self_attn.k_norm.weight"], eps), at_all, layer)
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
        y = torch.cat(heads, -1) @ w[f"{p}self_attn.o_proj.weight"].T
        if conv:
            y = convolved(y, w[f"{c}base_kernel"][1], delta[:, 1], conv.group)
        x = x + y
        u = norm(x, w[f"{p}post_attention_layernorm.weight"], eps)
        if conv:
            c = f"{p}mlp_conv."
            delta = (u @ w[f"{c}kernel_projection.weight"].T).view(len(ids), 2, conv.taps, -1)
            u = convolved(u, w[f"{c}base_kernel"][0], delta[:, 0], conv.group)
        gate, up = u @ w[f"{p}mlp.gate_proj.weight"].T, u @ w[f"{p}mlp.up_proj.weight"].T
        y = (gate * torch.sigmoid(gate) * up) @ w[f"{p}mlp.down_proj.weight"].T
        if conv:
            y = convolved(y, w[f"{c}base_kernel"][1], delta[:, 1], conv.group)
        x = x + y
    return norm(x, w["norm.weight"], eps)


def gru_cell(w: W, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    i = (w["domino.prefix_gru.weight_ih_l0"] @ x).chunk(3)
    h = (w["domino.prefix_gru.weight_hh_l0"] @ state).chunk(3)
    reset, update = torch.sigmoid(i[0] + h[0]), torch.sigmoid(i[1] + h[1])
    return (1 - update) * torch.tanh(i[2] + reset * h[2]) + update * state


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
    gru = torch.zeros(spec.domino.state if spec.domino else 0, dtype=hidden.dtype)
    for place, h in enumerate(hidden):
        logits = h @ head.T * spec.logit_scale
        if spec.softcap:
            logits = torch.tanh(logits / spec.softcap) * spec.softcap
        if spec.domino:
            gru = gru_cell(w, embedding[before] * spec.embed_scale, gru)
            if place >= spec.domino.pure:
                latent = torch.cat((h, gru)) @ w["domino.embed_proj.0.weight"].T
                latent = latent * torch.sigmoid(latent)
                logits = logits + latent @ w["domino.embed_proj.2.weight"].T
        if spec.selector:
            s = "candidate_selector."
            context = w[f"{s}predecessor_codebook.weight"][before] * (
                h @ w[f"{s}hidden_projection.weight"].T
            )
            scores = {
                int(i): float(logits[i] + context @ w[f"{s}successor_codebook.weight"][i])
                for i in logits.argsort(descending=True)[: spec.selector.top_k]
            }
            best = max(scores, key=lambda i: scores[i])
            logits = torch.zeros_like(logits)
            logits[best] = 1.0
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
        row = int(logits.argmax())
        before = row if ids is None else int(ids[row])
        found.append(before)
    return found, sure
