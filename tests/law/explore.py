"""Exhaustive enumeration: run something once for every way its random choices can fall.

What is explored asks `Branch` wherever it would roll dice; its result is a function of the answers,
so the results with their probabilities are its law, exactly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pytest
import torch

from actors.sampling import dice

T = TypeVar("T", bound=Hashable)


class Branch:
    """One way: follows `path`, then takes the first possibility each time."""

    def __init__(self, path: Sequence[int] = ()) -> None:
        self._path = list(path)
        self._taken: list[int] = []
        self.chance = 1.0
        self.others: list[list[int]] = []

    def choose(self, chances: Sequence[float]) -> int:
        """An index, with these chances."""
        possible = [i for i, chance in enumerate(chances) if chance > 0.0]
        if len(self._taken) < len(self._path):
            index = self._path[len(self._taken)]
        else:
            index = possible[0]
            self.others += [[*self._taken, other] for other in possible[1:]]
        self._taken.append(index)
        self.chance *= chances[index] / sum(chances)
        return index

    def passes(self, chance: float) -> bool:
        return self.choose([chance, 1.0 - chance]) == 0


def explore(run: Callable[[Branch], T]) -> Iterator[tuple[float, T]]:
    """(probability, result) of every way."""
    pending: list[list[int]] = [[]]
    while pending:
        branch = Branch(pending.pop())
        result = run(branch)
        pending += branch.others
        yield branch.chance, result


def law_of(run: Callable[[Branch], T]) -> dict[T, float]:
    """The exact law of `run`'s result."""
    law: dict[T, float] = defaultdict(float)
    for chance, result in explore(run):
        law[result] += chance
    return dict(law)


@contextmanager
def scripted(branch: Branch) -> Iterator[None]:
    """The project's dice, both sides', fall as `branch` says."""

    def pick(weights: torch.Tensor, place: dice.Place, use: dice.Use) -> int:
        return branch.choose(weights.tolist())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dice, "passes", lambda chance, place: branch.passes(chance))
        patch.setattr(dice, "pick", pick)
        yield
