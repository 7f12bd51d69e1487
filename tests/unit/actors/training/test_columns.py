"""Which tokens of the vocabulary a step looks at."""

from __future__ import annotations

import random

import torch

from actors.training.columns import by_frequency, choose_columns
from tests.unit.actors.training.small import VOCAB, example


def test_tokens_are_ordered_by_how_often_they_occur() -> None:
    examples = [example(40, 4, seed) for seed in range(3)]
    counts = torch.bincount(torch.cat([e.tokens for e in examples]), minlength=VOCAB)
    order = by_frequency(examples, VOCAB)
    assert sorted(order.tolist()) == list(range(VOCAB))
    assert counts[order].diff().max() <= 0


def test_a_step_has_its_own_tokens_the_frequent_ones_and_a_few_others() -> None:
    order, tokens = torch.arange(100).flip(0), torch.tensor([3, 3, 5])
    found = choose_columns(tokens, order, 40, random.Random(0))
    assert found.tolist() == sorted(set(found.tolist()))
    assert {3, 5} | set(range(70, 100)) <= set(found.tolist())
    assert 32 < len(found) <= 42
    assert not torch.equal(found, choose_columns(tokens, order, 40, random.Random(1)))
