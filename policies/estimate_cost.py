"""What a step costs the target, by rows, sequences and context: a profile, kept true by live
medians.

    T(rows, sequences, context) = stairs(rows) · correction(rows) + sequences · a + context · b

The stairs are measured before serving and never smoothed: between two profiled numbers of rows the
curve is straight, at an edge it jumps as it did, and more rows never cost less. Live steps correct
it by medians, so an interrupted step moves nothing: of all steps together (the machine has become
busier), and of those near one anchor against all (this part of the profile was wrong). When the
common correction has left its band for a while, that is an alarm: the profile is rescaled and the
alarm counted, because whatever caused it also voids what was concluded from it.
"""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

BAND = (0.85, 1.15)
"""Corrections within it are drift; outside it for `PATIENCE` steps they are an alarm."""
PATIENCE = 20
WINDOW = 31
"""Newest steps that the common median is taken of; of each anchor:"""
OWN_WINDOW = 9
LEAST = 3
"""With fewer steps near an anchor, only the common correction holds there."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One profiled forward. context: tokens attended to, summed over the sequences."""

    rows: int
    seconds: float
    sequences: int = 1
    context: int = 0


@dataclass(frozen=True, slots=True)
class StepCost:
    """rows, ascending, and stairs[i], the seconds there beyond `sequence_s` per sequence and
    `token_s` per token of context. table: the stairs as corrected. newest: ratios of measured to
    profiled, of all steps; own: the same against the median, by anchor; leaning: medians of
    those. outside: steps in a row with a median outside the band; alarms: how often the profile was
    rescaled."""

    rows: tuple[int, ...]
    stairs: tuple[float, ...]
    table: tuple[float, ...]
    sequence_s: float = 0.0
    token_s: float = 0.0
    newest: tuple[float, ...] = ()
    own: tuple[tuple[float, ...], ...] = ()
    leaning: tuple[float, ...] = ()
    outside: int = 0
    alarms: int = 0


def profiled(samples: Sequence[Sample]) -> StepCost:
    """The cost of steps from measured ones. Raises ValueError where there are none, or one took no
    time.

    For each number of rows the samples with the fewest sequences and the least context make the
    stairs; what the others took beyond them gives the cost of a sequence and of a token of context,
    never below zero."""
    if not samples or min(sample.seconds for sample in samples) <= 0.0:
        raise ValueError("a step's cost needs samples of positive seconds")
    first: dict[int, Sample] = {}
    for sample in sorted(samples, key=lambda s: (s.rows, s.sequences, s.context, s.seconds)):
        first.setdefault(sample.rows, sample)
    sequence_s, token_s = _slopes(samples, first)
    stairs = _undisturbed(
        [
            max(s.seconds - (s.sequences * sequence_s + s.context * token_s), 1e-9)
            for s in first.values()
        ]
    )
    rows = tuple(first)
    return StepCost(
        rows, stairs, stairs, sequence_s, token_s, own=((),) * len(rows), leaning=(1.0,) * len(rows)
    )


def step_s(cost: StepCost, rows: float, sequences: int = 0, context: int = 0) -> float:
    """Seconds expected of a step; `rows` may be a mean, and so no whole number."""
    beside = sequences * cost.sequence_s + context * cost.token_s
    return _interpolated(cost.rows, cost.table, rows) + beside


def observed(
    cost: StepCost, rows: int, took_s: float, sequences: int = 0, context: int = 0
) -> StepCost:
    """After a step without prompts of so many rows. A measurement that is no time is ignored."""
    if took_s <= 0.0:
        return cost
    beside = sequences * cost.sequence_s + context * cost.token_s
    profile_s = _interpolated(cost.rows, cost.stairs, rows)
    ratio = max(took_s - beside, 0.05 * profile_s) / profile_s
    newest = (*cost.newest[1 - WINDOW :], ratio)
    common = statistics.median(newest)
    near = _nearest(cost.rows, rows)
    mine = (*cost.own[near][1 - OWN_WINDOW :], ratio / common)
    inside = BAND[0] <= common <= BAND[1]
    outside = 0 if inside else cost.outside + 1
    if outside >= PATIENCE:
        return _rescaled(cost, common)
    own = (*cost.own[:near], mine, *cost.own[near + 1 :])
    lean = statistics.median(mine) if len(mine) >= LEAST else 1.0
    leaning = (*cost.leaning[:near], lean, *cost.leaning[near + 1 :])
    table = _rising([s * common * own for s, own in zip(cost.stairs, leaning, strict=True)])
    return replace(cost, table=table, newest=newest, own=own, leaning=leaning, outside=outside)


def _rescaled(cost: StepCost, common: float) -> StepCost:
    stairs = tuple(value * common for value in cost.stairs)
    table = _rising([s * own for s, own in zip(stairs, cost.leaning, strict=True)])
    return replace(cost, stairs=stairs, table=table, newest=(), outside=0, alarms=cost.alarms + 1)


def _slopes(samples: Sequence[Sample], first: dict[int, Sample]) -> tuple[float, float]:
    """Seconds a sequence and a token of context, by least squares over pairs of equal rows."""
    pairs = [(s, first[s.rows]) for s in samples if s is not first[s.rows]]
    moved = np.array([(s.sequences - f.sequences, s.context - f.context) for s, f in pairs], float)
    if not len(pairs) or not moved.any():
        return 0.0, 0.0
    more_s = np.array([s.seconds - f.seconds for s, f in pairs])
    sequence_s, token_s = np.linalg.lstsq(moved, more_s, rcond=None)[0]
    return max(float(sequence_s), 0.0), max(float(token_s), 0.0)


def _interpolated(rows: tuple[int, ...], seconds: tuple[float, ...], at: float) -> float:
    """Straight between anchors; before the first as there, beyond the last as steep as at its end,
    or as on the whole where that is steeper: an end that happens to be flat does not promise rows
    for nothing for ever."""
    if len(rows) == 1 or at <= rows[0]:
        return seconds[0]
    if at > rows[-1]:
        end = (seconds[-1] - seconds[-2]) / (rows[-1] - rows[-2])
        whole = (seconds[-1] - seconds[0]) / (rows[-1] - rows[0])
        return seconds[-1] + max(end, whole) * (at - rows[-1])
    left = min(bisect.bisect_right(rows, at) - 1, len(rows) - 2)
    share = (at - rows[left]) / (rows[left + 1] - rows[left])
    return seconds[left] + share * (seconds[left + 1] - seconds[left])


def _undisturbed(values: Sequence[float]) -> tuple[float, ...]:
    """More rows never cost less, and what disturbs a measurement only ever adds to it: so many rows
    take no longer than what more of them were measured to take."""
    return tuple(itertools.accumulate(reversed(values), min))[::-1]


def _nearest(rows: tuple[int, ...], at: int) -> int:
    return min(range(len(rows)), key=lambda i: abs(rows[i] - at))


def _rising(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(itertools.accumulate(values, max))
