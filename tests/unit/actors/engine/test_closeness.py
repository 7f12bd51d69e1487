"""A kernel is judged by most of its rows: one that amplifies rounding condemns nobody."""

from __future__ import annotations

import pytest
import torch

from actors.engine.closeness import apart, probe_ids, tolerance


def logits(off: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """[rows, 64] of a model and the same with each row off by that share of its norm."""
    torch.manual_seed(0)
    theirs, noise = torch.randn(len(off), 64), torch.randn(len(off), 64)
    noise *= theirs.norm(dim=-1, keepdim=True) / noise.norm(dim=-1, keepdim=True)
    return theirs + torch.tensor(off)[:, None] * noise, theirs


def test_a_row_in_seven_that_amplifies_rounding_is_no_fault() -> None:
    ours, theirs = logits([0.0, 0.3, *[0.008] * 6])
    assert apart(ours, theirs) == pytest.approx(0.008, rel=1e-3)
    assert apart(ours, theirs) < tolerance(torch.bfloat16)


@pytest.mark.parametrize("wrong", [5, 10, 15])
def test_a_fault_in_a_third_of_the_rows_or_more_is_seen(wrong: int) -> None:
    ours, theirs = logits([*[0.001] * (16 - wrong), *[0.175] * wrong])
    assert apart(ours, theirs) > tolerance(torch.bfloat16) > tolerance(torch.float32)


def test_the_first_row_tells_nothing() -> None:
    assert apart(*logits([0.9, *[0.0] * 15])) == 0.0


def test_what_is_no_number_is_never_close() -> None:
    ours, theirs = logits([0.0] * 8)
    ours[3] = float("nan")
    assert not apart(ours, theirs) <= tolerance(torch.bfloat16)


@pytest.mark.parametrize("vocab", [97, 128, 49152])
def test_a_probe_has_many_different_ids(vocab: int) -> None:
    ids = probe_ids(40, vocab)
    assert all(0 <= i < vocab for i in ids)
    assert len(set(ids)) == 40
