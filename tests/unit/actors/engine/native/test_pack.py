"""Weights in panels: nothing lost, nothing out of place."""

from __future__ import annotations

import pytest
import torch

from actors.engine.native.pack import pack, pack_bias, pack_pairs, padded


@pytest.mark.parametrize("shape", [(16, 3), (40, 5), (1, 1), (33, 8)])
def test_a_panel_holds_sixteen_columns_for_each_input(shape: tuple[int, int]) -> None:
    weight = torch.arange(shape[0] * shape[1], dtype=torch.float32).view(shape)
    panels = pack(weight)
    assert panels.shape == (padded(shape[0]) // 16, shape[1], 16)
    flat = panels.transpose(1, 2).reshape(-1, shape[1])
    assert torch.equal(flat[: shape[0]], weight)
    assert not flat[shape[0] :].any()


def test_bf16_columns_j_and_j_plus_8_share_a_word_the_first_in_its_lower_half() -> None:
    weight = torch.arange(16, dtype=torch.bfloat16).view(16, 1)
    words = pack(weight).view(torch.int32).flatten()
    low, high = (words << 16).view(torch.float32), (words & -65536).view(torch.float32)
    assert low.tolist() == list(range(8))
    assert high.tolist() == list(range(8, 16))


def test_pairs_alternate() -> None:
    gate, up = torch.zeros(32, 4), torch.ones(32, 4)
    panels = pack_pairs(gate, up)
    assert [panel.unique().tolist() for panel in panels] == [[0.0], [1.0], [0.0], [1.0]]


def test_biases_lie_side_by_side_and_are_padded() -> None:
    row = pack_bias(torch.ones(5, dtype=torch.bfloat16), None, torch.full((4,), 2.0))
    assert row is not None
    assert row.tolist() == [1.0] * 5 + [2.0] * 4 + [0.0] * 7
    assert pack_bias(None, None) is None
