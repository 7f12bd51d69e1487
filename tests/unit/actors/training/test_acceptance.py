"""Acceptance length by replay is that of a run."""

from __future__ import annotations

import pytest
import torch

from actors.training.acceptance import following, lengths, replay, run_of_right, survival


def test_rounds_are_those_of_a_run_that_accepts_and_adds_one() -> None:
    right = [2, 0, 5, 0, 0, 3, 1]
    # D = 2: anchor 0 writes 3, anchor 3 writes 1, anchor 4 writes 1, anchor 5 writes the rest.
    assert replay(right, 2).rounds == 4
    assert replay(right, 1).rounds == 4  # 0 (2), 2 (2), 4 (1), 5 (2)
    assert replay([0] * 7, 6).length == 1.0
    assert replay(right, 2).tokens == 7


def test_lengths_join_answers_by_tokens_and_rounds_not_by_ratios() -> None:
    answers = [("a", [1, 0]), ("b", [0, 0, 0, 0])]
    found = lengths(answers, 1)
    assert found == {"1": 6 / 5, "a": 2.0, "b": 1.0}
    assert survival(answers, 2) == pytest.approx([1 / 6, 0.0])


def test_a_draft_beyond_the_end_of_the_answer_is_never_right() -> None:
    text = following(torch.tensor([9, 1, 2, 3]), 1, 2)
    assert text.tolist() == [[2, 3], [3, -1]]
    assert run_of_right(torch.tensor([[2, 3], [3, 4]]), text).tolist() == [2, 1]


def test_a_right_draft_after_a_wrong_one_counts_for_nothing() -> None:
    assert run_of_right(torch.tensor([[5, 3]]), torch.tensor([[2, 3]])).tolist() == [0]
