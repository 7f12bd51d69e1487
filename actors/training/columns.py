"""A step's columns of the target's head.

The head is the target's own and stays as it is, so a step may look at a part of it: where both laws
are taken within the same tokens, they agree there when they agree everywhere. So what a drafter may
draft is chosen when it is exported, and costs nothing while it learns.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from actors.training.examples import Example


def by_frequency(examples: Sequence[Example], vocab: int) -> torch.Tensor:
    """Target ids, the most frequent of prompts and answers first; of equals the lower. int64
    [vocab]"""
    counts = torch.bincount(torch.cat([e.tokens for e in examples]), minlength=vocab)
    return torch.argsort(counts, descending=True, stable=True)


def choose_columns(
    tokens: torch.Tensor, order: torch.Tensor, count: int, rng: random.Random
) -> torch.Tensor:
    """Distinct target ids, ascending: all `tokens` of the step, the most frequent ones for three
    quarters of `count`, and others at random for the rest. order: target ids, most frequent
    first."""
    random_ids = torch.Generator("cpu").manual_seed(rng.getrandbits(48))
    common = order[: 3 * count // 4]
    others = torch.randint(len(order), (count - len(common),), generator=random_ids, device="cpu")
    found = torch.cat((tokens, common, others.to(order.device)))
    return torch.bincount(found).nonzero().flatten()
