"""Attention that looks back sees the rows it was told to."""

from __future__ import annotations

from dataclasses import replace

import torch

from actors.drafters.learned.blocks import DecoderLayer
from actors.training.block_trainee import BlockTrainee
from actors.training.laws import TargetLaw
from actors.training.look_back import look_back
from tests.unit.actors.training.small import LAYER, TAPS, block_spec, example, parts

WIDE = replace(LAYER, head_dim=32, rope={"rope_type": "default", "rope_theta": 10000.0})


@torch.no_grad()
def test_query_head_r_scores_the_row_r_plus_1_before_it_highest() -> None:
    """At any position, for any token and whatever the rows' features are."""
    torch.manual_seed(0)
    spec = replace(block_spec(next_token=True), layer=WIDE)
    made = BlockTrainee(spec, parts(), TargetLaw.of(parts(), torch.arange(40)), 0)
    texts = [example(40, 4, seed) for seed in range(8)]
    for e in texts:
        e.features[:, 0] = 9.0  # as in real targets, some dimension is about constant
    look_back(made.module, parts().embedding, made.inverse, texts, 3)
    e, model = texts[0], made.module
    at = torch.arange(38)
    width = len(TAPS) * 16
    context = model.context(e.features[:38, :width].float())
    for layer in model.layers:
        assert isinstance(layer, DecoderLayer)
        table = model.rope(at)
        keys, _ = layer.self_attn.key_value(context, model.rope, table)
        rows = layer.input_layernorm(parts().embedding[e.tokens[:38]])
        queries = layer.self_attn.query(rows, model.rope, table)
        for r in range(2):
            scores = queries[:, r] @ keys[:, 0].T
            found = [int(scores[p, :p].argmax()) for p in range(8, 38)]
            right = sum(f == p - r - 1 for p, f in zip(range(8, 38), found, strict=True))
            assert right >= 25
