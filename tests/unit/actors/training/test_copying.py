"""Layers that copy are told by where their heads look."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from actors.training.copying import LENGTH, best_head, best_layers, copying_scores
from actors.training.errors import TrainingError
from tests.unit.actors.training.small_target import LAYERS, saved_target


def looking(back: int, n: int = 8) -> torch.Tensor:
    """A head whose rows look so many rows back, [1, 1, 2 n, 2 n]."""
    rows = torch.arange(2 * n)
    out = torch.zeros(1, 1, 2 * n, 2 * n)
    out[0, 0, rows, (rows - back).clamp(min=0)] = 1.0
    return out


def test_a_head_that_looks_at_what_followed_the_last_time_copies() -> None:
    assert best_head(looking(7)) == 1.0
    assert best_head(looking(8)) == 0.0  # at the same token
    assert best_head(looking(1)) == 0.0
    assert best_head(torch.cat((looking(1), 0.25 * looking(7)), 1)) == 0.25


def test_the_best_layers_are_taken_in_their_order_from_the_first_that_may_be() -> None:
    assert best_layers([0.9, 0.1, 0.3, 0.2, 0.3], 1, 2) == (2, 4)
    assert best_layers([0.9, 0.1, 0.1], 1, 1) == (1,)
    assert best_layers([0.9], 1, 2) == ()


def test_each_layer_of_a_target_has_a_share(tmp_path: Path) -> None:
    saved_target(tmp_path)
    scores = copying_scores(tmp_path)
    assert len(scores) == LAYERS
    assert all(0.0 < score < 1.0 for score in scores)
    assert max(scores) > 1.0 / (2 * LENGTH)
    assert scores == copying_scores(tmp_path)


def test_a_target_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="cannot load the target"):
        copying_scores(tmp_path)
