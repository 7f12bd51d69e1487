"""Attention that begins by looking a few rows back.

The row before the anchor says most about what comes, and projections from noise attend to all rows
alike: to learn where to look takes longer than all the rest. So one KV head of each layer, and its
queries, begin with a constant direction. RoPE turns it by position, so that the score of two rows
depends on their distance alone, and on the fast frequencies it peaks where the queries' turn says.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from actors.drafters.learned.block_head import BlockHead
from actors.drafters.learned.blocks import DecoderLayer
from actors.training.examples import Example
from actors.training.packing import context_rows

FAST = 0.05
"""Radians a position: frequencies above it tell near rows from far ones."""
_ENOUGH, _RIDGE = 16, 1e-2


@torch.no_grad()
def look_back(
    model: BlockHead,
    embedding: torch.Tensor,
    inverse: torch.Tensor,
    examples: Sequence[Example],
    mask_token: int,
) -> None:
    """Query head r of the first KV head begins at distance r + 1. embedding: the target's;
    inverse: what features are multiplied by."""
    some = examples[:_ENOUGH]
    features, _ = context_rows(some, slice(0, inverse.shape[0]))
    to_key = constant(model.context(features.to(inverse.device) * inverse))
    tokens = torch.tensor(sorted({t for e in some for t in e.tokens.tolist()}))
    masks = torch.full((len(tokens),), mask_token)
    rows = embedding[torch.cat((tokens, masks))]
    for layer in model.layers:
        assert isinstance(layer, DecoderLayer)
        attention, spec = layer.self_attn, layer.self_attn.spec
        to_query = constant(layer.input_layernorm(rows))
        cosines, sines = (t[:, 0] for t in model.rope(torch.arange(spec.heads + 1)))
        fast = torch.acos(cosines[1].clamp(-1, 1)) > FAST  # angle of one position
        attention.k_proj.weight[: spec.head_dim] = fast.float().repeat(2)[:, None] * to_key
        for r in range(spec.heads // spec.kv_heads):
            # Turned back by r + 1: a query at position p stands where row p - r - 1 does.
            c, s = cosines[r + 1] * fast, sines[r + 1] * fast
            turned = torch.cat((c + s, c - s))
            head = slice(r * spec.head_dim, (r + 1) * spec.head_dim)
            attention.q_proj.weight[head] = turned[:, None] * to_query


def constant(rows: torch.Tensor) -> torch.Tensor:
    """u with u · x close to one for all rows x [n, hidden], by ridge regression."""
    size = rows.shape[1]
    gram = rows.T @ rows / rows.shape[0] + _RIDGE * torch.eye(size)
    found: torch.Tensor = torch.linalg.solve(gram, rows.mean(0))
    return found
