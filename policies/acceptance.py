"""How likely drafted tokens are accepted, by position: discounted counts with a chain prior."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

MAX_POSITIONS = 32
MEMORY = 400.0
"""Rounds a count remembers, on average."""
PRIOR = 0.6
PRIOR_WEIGHT = 8.0


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Discounted counts by position: how often position k was decided, and accepted. A position
    behind a rejected one was never decided: it is censored, not a failure."""

    decided: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()


def verified(state: Acceptance, drafted: int, accepted: int, memory: float = MEMORY) -> Acceptance:
    """One block of `drafted` tokens of which the target took `accepted`."""
    drafted = min(drafted, MAX_POSITIONS)
    reach = min(accepted + 1, drafted)
    keep = 1.0 - 1.0 / memory
    size = max(reach, len(state.decided))
    decided = [*state.decided, *[0.0] * (size - len(state.decided))]
    kept = [*state.accepted, *[0.0] * (size - len(state.accepted))]
    for k in range(reach):
        decided[k] = decided[k] * keep + 1.0
        kept[k] = kept[k] * keep + (k < accepted)
    return Acceptance(tuple(decided), tuple(kept))


def faded(state: Acceptance, keep: float) -> Acceptance:
    """The same rates with a share `keep` of the evidence, at every position: time has passed, or
    the text has changed."""
    return Acceptance(
        tuple(count * keep for count in state.decided),
        tuple(count * keep for count in state.accepted),
    )


def added(state: Acceptance, blocks: Sequence[tuple[int, int]]) -> Acceptance:
    """The blocks of one step, (drafted, accepted) each, in any order; nothing fades."""
    size = len(state.decided)
    for drafted, accepted in blocks:
        size = max(size, min(accepted + 1, drafted, MAX_POSITIONS))
    decided = [*state.decided, *[0.0] * (size - len(state.decided))]
    kept = [*state.accepted, *[0.0] * (size - len(state.accepted))]
    for drafted, accepted in blocks:
        for k in range(min(accepted + 1, drafted, MAX_POSITIONS)):
            decided[k] += 1.0
            kept[k] += k < accepted
    return Acceptance(tuple(decided), tuple(kept))


def summed(one: Acceptance, other: Acceptance) -> Acceptance:
    """The evidence of both."""

    def plus(a: Sequence[float], b: Sequence[float]) -> tuple[float, ...]:
        return tuple(map(sum, zip_longest(a, b, fillvalue=0.0)))

    return Acceptance(plus(one.decided, other.decided), plus(one.accepted, other.accepted))


def survival(
    state: Acceptance,
    depth: int,
    prior: Acceptance | None = None,
    weight: float = PRIOR_WEIGHT,
    sigmas: float = 0.0,
    carry: bool = False,
) -> tuple[float, ...]:
    """P(the first k tokens are all accepted) for k = 1 … depth.

    A position's prior is the estimate of the one before it; with `prior` (the counts of a wider
    group) it is that group's estimate at the same position. carry: where the estimate falls short
    of the group's at one position, it is expected to at the next, in proportion; blocks that end
    early say nothing else of positions behind. sigmas: every rate is taken so many posterior
    standard deviations higher (the mean of a beta law with `weight` of prior evidence).
    """
    result: list[float] = []
    chance, rate, wide, short = 1.0, PRIOR, PRIOR, 1.0
    for k in range(min(depth, MAX_POSITIONS)):
        if prior is not None:
            wide = _rate(prior, k, wide, PRIOR_WEIGHT)
            rate = wide * short
        rate = _rate(state, k, rate, weight)
        if carry:
            short = min(rate / wide, 1.0)
        chance *= rate if not sigmas else min(rate + sigmas * _doubt(state, k, rate, weight), 1.0)
        result.append(chance)
    return tuple(result)


def _rate(state: Acceptance, k: int, prior: float, weight: float) -> float:
    decided = state.decided[k] if k < len(state.decided) else 0.0
    accepted = state.accepted[k] if k < len(state.accepted) else 0.0
    return (accepted + weight * prior) / (decided + weight)


def _doubt(state: Acceptance, k: int, rate: float, weight: float) -> float:
    decided = state.decided[k] if k < len(state.decided) else 0.0
    return math.sqrt(rate * (1.0 - rate) / (decided + weight + 1.0))
