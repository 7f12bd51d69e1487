"""Acceptance does not fall with the position: a drafter's RoPE is its own, and is kept (S37)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from actors.drafters.config import DrafterConfig
from actors.drafters.learned.blocks import Rope
from actors.drafters.learned.spec import LayerSpec
from actors.drafters.table import build_drafter
from tests.drafters.knowing import next_token_of
from tests.models import make_rand, save_tiny
from tests.unit.actors.drafters.builders import GREEDY, draft, make_commit, make_open

torch.set_num_threads(1)

LENGTH = 128
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}
KINDS = {
    "linear": LINEAR,
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}


def right_by_position(folder: str) -> list[bool]:
    """Whether the first draft at each position is what a target with linear RoPE writes."""
    target = next_token_of(make_rand(rope_parameters=LINEAR))
    drafter = build_drafter(DrafterConfig("draft_model", folder, dtype="float64"))
    tokens = [7]
    drafter.open([make_open(tokens)])
    right = []
    while len(tokens) < LENGTH:
        token = target(tokens, GREEDY)
        right.append(draft(drafter, 1)[0] == token)
        drafter.observe([make_commit(len(tokens), token)])
        tokens.append(token)
    return right


def test_a_draft_model_keeps_its_own_rope_at_every_position(tmp_path: Path) -> None:
    folder = save_tiny(make_rand(rope_parameters=LINEAR), tmp_path / "draft")
    assert all(right_by_position(folder))


def test_a_draft_model_whose_rope_was_lost_would_be_noticed(tmp_path: Path) -> None:
    folder = save_tiny(make_rand(), tmp_path / "draft")
    right = right_by_position(folder)
    assert sum(right[96:]) < len(right[96:]) / 2


@pytest.mark.parametrize("kind", KINDS)
def test_learned_drafters_turn_by_the_rule_that_their_config_names(kind: str) -> None:
    """The same tables as transformers' at every position, near and far."""
    spec = LayerSpec(
        hidden=64,
        heads=4,
        kv_heads=2,
        head_dim=16,
        intermediate=96,
        eps=1e-6,
        max_context=512,
        rope=KINDS[kind],
    )
    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=4,
        head_dim=16,
        max_position_embeddings=512,
        rope_parameters=KINDS[kind],
    )
    positions = torch.arange(512)
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    found = [part[:, 0] for part in Rope(spec)(positions)]
    plain = [part[:, 0] for part in Rope(LayerSpec(64, 4, 2, 16, 96, 1e-6))(positions)]
    for ours, theirs, other in zip(found, (cos, sin), plain, strict=True):
        torch.testing.assert_close(ours, theirs[0, :, :8], atol=1e-6, rtol=0.0)
        assert (ours - other).abs().max() > 0.1


def test_a_linear_factor_moves_positions_closer_together() -> None:
    """By the formula, not by anybody's code: position 4p is turned as p was."""
    spec = LayerSpec(64, 4, 2, 16, 96, 1e-6, rope=LINEAR)
    wide = Rope(spec)(4 * torch.arange(100))
    near = Rope(LayerSpec(64, 4, 2, 16, 96, 1e-6))(torch.arange(100))
    for ours, theirs in zip(wide, near, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0.0)
