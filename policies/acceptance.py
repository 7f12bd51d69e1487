"""How likely drafted tokens are accepted, by position: discounted counts with a chain prior."""

from __future__ import annotations

from dataclasses import dataclass

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


def survival(
    state: Acceptance,
    depth: int,
    prior: Acceptance | None = None,
    weight: float = PRIOR_WEIGHT,
) -> tuple[float, ...]:
    """P(the first k tokens are all accepted) for k = 1 … depth.

    A position's prior is the estimate of the one before it; with `prior` (the counts of a wider
    group) it is that group's estimate at the same position.
    """
    result: list[float] = []
    chance, rate, wide = 1.0, PRIOR, PRIOR
    for k in range(min(depth, MAX_POSITIONS)):
        if prior is not None:
            rate = wide = _rate(prior, k, wide, PRIOR_WEIGHT)
        rate = _rate(state, k, rate, weight)
        chance *= rate
        result.append(chance)
    return tuple(result)


def _rate(state: Acceptance, k: int, prior: float, weight: float) -> float:
    decided = state.decided[k] if k < len(state.decided) else 0.0
    accepted = state.accepted[k] if k < len(state.accepted) else 0.0
    return (accepted + weight * prior) / (decided + weight)
