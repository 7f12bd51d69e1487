"""What a block costs before it is there: drafting by sessions and depth, and the wire.

A serial drafter takes a forward for each token, a one-pass drafter one for the block, a suffix tree
next to nothing; none of it is assumed. A grid of measured (sessions, depth) is read between its
points, more of either never costs less, and live blocks correct it by the median of what they took
against it. The grid is the drafter's own, from its start, and a guess until one has come. The wire
is what a block took beyond its drafting. Only blocks that came are measured here: one that did not
says "longer than that", which is for `policies.waiting` to make use of.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from policies import cost

WINDOW = 21
"""Newest blocks that the medians are taken of."""
UNKNOWN_S = 0.0005
"""Of a round trip of which nothing is known: two processes of one machine."""

GUESSED_S = 0.0005
"""Of a drafter's forward, before one was timed."""
GROWTH = ((1, 1.0), (8, 1.5), (64, 4.0))
"""(times the sessions, times the seconds), where only one number of sessions was ever timed."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Profiled seconds: sessions, ascending, each with a curve over depth."""

    sessions: tuple[int, ...]
    curves: tuple[cost.Cost, ...]


@dataclass(frozen=True, slots=True)
class DraftCost:
    """newest: ratios of measured to profiled; scale: their median. trips: newest seconds on the
    wire, both ways; wire_s: their median. guess: no drafter has timed itself yet."""

    grid: Grid
    newest: tuple[float, ...] = ()
    scale: float = 1.0
    trips: tuple[float, ...] = ()
    wire_s: float = UNKNOWN_S
    guess: bool = False


def profiled(samples: Sequence[tuple[int, int, float]], wire_s: float = UNKNOWN_S) -> DraftCost:
    """From (sessions, depth, seconds). Raises ValueError without samples."""
    if not samples:
        raise ValueError("a draft's cost needs at least one sample")
    counts = tuple(sorted({sessions for sessions, _, _ in samples}))
    curves: list[cost.Cost] = []
    for count in counts:
        curve = cost.profiled([(depth, s) for sessions, depth, s in samples if sessions == count])
        if curves:  # more sessions never cost less, wherever either curve was measured
            depths = sorted({*curve.rows, *curves[-1].rows})
            curve = cost.profiled(
                [(d, max(cost.seconds(curve, d), cost.seconds(curves[-1], d))) for d in depths]
            )
        curves.append(curve)
    return DraftCost(Grid(counts, tuple(curves)), wire_s=wire_s)


def guessed(max_depth: int) -> DraftCost:
    """Of a drafter of which nothing is known yet: a forward for each token, half again as much for
    eight times the sessions. The first live blocks bring the scale."""
    most = max(max_depth, 1)
    made = [
        (sessions, depth, GUESSED_S * depth * more)
        for sessions, more in GROWTH
        for depth in (1, most)
    ]
    return replace(profiled(made), guess=True)


def timed(timings: Sequence[tuple[int, int, float]], before: DraftCost | None = None) -> DraftCost:
    """From what a drafter has measured of itself, (sessions, depth, seconds). before: the guess
    that this takes the place of; its wire was measured and stays, its ratios were to the guess. A
    slow drafter has timed one number of sessions alone: more are taken to cost as in `GROWTH`.
    Raises ValueError without timings."""
    known = list(timings)
    if len({sessions for sessions, _, _ in known}) == 1:
        known = [(n * times, d, s * more) for n, d, s in known for times, more in GROWTH]
    grid = profiled(known)
    return grid if before is None else replace(grid, trips=before.trips, wire_s=before.wire_s)


def block_s(state: DraftCost, sessions: int, depth: int, *, remote: bool = True) -> float:
    """Seconds from asking for blocks of `depth` in so many sessions to having them; 0 for none.
    Drafters in the target's process have no wire, but what asking takes beyond drafting counts once
    it was measured."""
    if depth < 1 or sessions < 1:
        return 0.0
    beyond_s = state.wire_s if remote or state.trips else 0.0
    return _profile_s(state.grid, sessions, depth) * state.scale + beyond_s


def observed(
    state: DraftCost, sessions: int, depth: int, draft_s: float, trip_s: float | None = None
) -> DraftCost:
    """After blocks that came. draft_s: what drafting them took, by the drafter's own clock.
    trip_s: what they took beyond it; None where that is not known. No clocks are compared."""
    profile_s = _profile_s(state.grid, max(sessions, 1), max(depth, 1))
    if draft_s >= 0.0 and profile_s > 0.0:
        newest = (*state.newest[1 - WINDOW :], draft_s / profile_s)
        state = replace(state, newest=newest, scale=statistics.median(newest))
    if trip_s is None:
        return state
    trips = (*state.trips[1 - WINDOW :], max(trip_s, 0.0))
    return replace(state, trips=trips, wire_s=statistics.median(trips))


@lru_cache(maxsize=8192)
def _profile_s(grid: Grid, sessions: int, depth: int) -> float:
    at = [cost.seconds(curve, depth) for curve in grid.curves]
    return cost.seconds(cost.Cost(grid.sessions, tuple(at)), sessions)
