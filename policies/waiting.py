"""How long a step may wait for blocks that are late (DESIGN §7).

A row whose block is late joins as a one-token row and uses the still-matching tail of the block in
the next step, so no row is held back; the step itself may wait. With a1 the first acceptance, S2
the summed survival of positions 2 … D and E = 1 + a1 + S2 the expected tokens, a row that goes
without loses 2·a1 + S2 tokens over this step and the next. Where rows cost nothing and a share f of
them is missing, that is worth

    w* = f · T_step · (2·a1 + S2) / E

Rows do cost, and a block that would not be verified is worth no wait at all: `worths` prices the
rows that a block would bring, and what is expected of it before it has come. The wait is capped by
what live arrivals say: never past their 95th percentile plus a margin, and not at all when an
arrival within it is unlikely.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WINDOW = 128
CAP_QUANTILE = 0.95
MARGIN = 1.25
MARGIN_S = 0.001
MIN_ARRIVAL = 0.2


def worth_s(share: float, step_s: float, survive: Sequence[float]) -> float:
    """w* where rows cost nothing: beyond it the step earns more by going without the blocks of
    this share of its rows."""
    if not survive or share <= 0.0 or step_s <= 0.0:
        return 0.0
    first, later = survive[0], math.fsum(survive[1:])
    return min(share, 1.0) * step_s * (2.0 * first + later) / (1.0 + first + later)


def worths(
    survivals: Sequence[Sequence[float]],
    reaches: Sequence[Sequence[float]],
    depths: Sequence[int],
    writers: int,
    step_s: Callable[[int], float],
) -> list[float]:
    """Seconds that each block is worth to a step of `writers` requests, before it has come.

    survivals: by block, P(the target writes its first k tokens), k = 1, 2, …; reaches: P(it comes
    with k tokens or more). depths: how many of its rows would be verified. step_s: seconds by rows.
    Without row costs and with certain blocks the sum is w*. Over two steps a block in time makes
    d + 1 rows more than one that is late, and those are paid for.
    """
    rows = sum(depths)
    if not rows:
        return [0.0] * len(depths)
    plain_s = step_s(writers)
    row_s = max(0.0, step_s(writers + rows) - plain_s) / rows
    comes = [reach[:depth] for reach, depth in zip(reaches, depths, strict=True)]
    right = [
        [r * s for r, s in zip(c, s, strict=False)] for c, s in zip(comes, survivals, strict=True)
    ]
    whole_s = plain_s + row_s * math.fsum(map(math.fsum, comes))
    token_s = whole_s / (writers + math.fsum(map(math.fsum, right)))
    return [
        max(0.0, _twice_first(tokens) * token_s - _twice_first(drafted) * row_s)
        for tokens, drafted in zip(right, comes, strict=True)
    ]


def _twice_first(values: Sequence[float]) -> float:
    """2·v1 + v2 + v3 + …"""
    return math.fsum((*values[:1], *values))


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The newest answers of a drafter: (seconds from ask to answer, answered). An ask that was
    given up after so many seconds is a censored sample."""

    samples: tuple[tuple[float, bool], ...] = ()


def arrived(state: Arrivals, seconds: float) -> Arrivals:
    return Arrivals((*state.samples[-(WINDOW - 1) :], (max(seconds, 0.0), True)))


def given_up(state: Arrivals, seconds: float) -> Arrivals:
    return Arrivals((*state.samples[-(WINDOW - 1) :], (max(seconds, 0.0), False)))


@dataclass(frozen=True, slots=True)
class ArrivalLaw:
    """P(not arrived by t) as a falling staircase: (t, value from t on), ascending in t.

    Kaplan and Meier's estimator: a censored sample only says "not yet", so it neither shrinks the
    quantiles (it is no fast answer) nor inflates them (none exceeds the slowest real answer)."""

    steps: tuple[tuple[float, float], ...]

    def late(self, seconds: float) -> float:
        """P(an answer takes longer than `seconds`)."""
        value = 1.0
        for at, after in self.steps:
            if at > seconds:
                break
            value = after
        return value

    def within(self, seconds: float, age_s: float) -> float:
        """P(an ask of age `age_s` is answered in the next `seconds`)."""
        still_out = self.late(age_s)
        return 1.0 - self.late(age_s + seconds) / still_out if still_out > 0.0 else 1.0

    def quantile(self, share: float) -> float:
        """The time by which `share` of the asks are answered, at most the slowest answer seen."""
        for at, after in self.steps:
            if 1.0 - after >= share:
                return at
        return self.steps[-1][0] if self.steps else 0.0


def arrival_law(state: Arrivals) -> ArrivalLaw | None:
    """None without samples: nothing is known yet."""
    if not state.samples:
        return None
    steps: list[tuple[float, float]] = []
    at_risk, value = len(state.samples), 1.0
    for seconds, answered in sorted(state.samples, key=lambda s: (s[0], not s[1])):
        if answered:
            value *= 1.0 - 1.0 / at_risk
            steps.append((seconds, value))
        at_risk -= 1
    return ArrivalLaw(tuple(steps))


def wait_s(
    worth_s: float, law: ArrivalLaw | None, *, age_s: float = 0.0, waited_s: float = 0.0
) -> float:
    """How long to wait from now, in seconds; 0 is not at all.

    worth_s: of all blocks that are missing. age_s: how long ago they were asked for. waited_s: how
    long this step has waited already.
    """
    budget_s = worth_s - waited_s
    if law is not None:
        budget_s = min(budget_s, patience_s(law) - age_s)
    if budget_s <= 0.0:
        return 0.0
    return budget_s if law is None or law.within(budget_s, age_s) >= MIN_ARRIVAL else 0.0


def patience_s(law: ArrivalLaw | None) -> float:
    """After so long an answer is overdue: the cap quantile plus a margin."""
    return 0.0 if law is None else law.quantile(CAP_QUANTILE) * MARGIN + MARGIN_S
