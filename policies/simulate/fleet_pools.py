"""Drafters of a fleet: each serves the frames of its verifiers one after the other."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from policies.simulate.links import LEAST_S
from policies.simulate.scenario import Scenario

NOTICED_S = 3 * LEAST_S
"""A dead drafter is isolated after three misses, and its verifiers go to the others."""
_NEWEST = 0.02

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Pools:
    """All ways' drafters. A verifier's home is its index modulo the drafters that are taken for
    alive."""

    def __init__(self, scenario: Scenario, rng: np.random.Generator) -> None:
        self._scenario, self._rng = scenario, rng
        self._ways = list(scenario.ways.values())
        self._names = list(scenario.ways)
        self.most = max((way.max_depth for way in self._ways), default=1)
        self._free = [np.zeros(way.drafters) for way in self._ways]
        self._busy = [0.0 for _ in self._ways]
        self._exposed: dict[str, float] = {}
        self._now_s = 0.0
        self._truth = self._acceptance()

    def truth(self) -> tuple[Floats, Floats]:
        """P(the first k + 1 tokens are right), [way, cohort, k]; P(a block comes), [way, cohort].
        The last way stands for none."""
        return self._truth

    def exposed(self) -> dict[str, float]:
        """By way, what steps wait for its blocks, smoothed."""
        return dict(self._exposed)

    def busy(self, duration_s: float) -> dict[str, float]:
        shares = zip(self._names, self._ways, self._busy, strict=True)
        return {n: b / way.drafters / duration_s for n, way, b in shares if way.remote}

    def useless(self, active: Ints, way: Ints) -> Bools:
        """Which places are drafted for by a drafter that is always wrong."""
        bad = np.zeros(way.shape, bool)
        for fault in self._scenario.faults:
            if fault.kind == "useless" and fault.at_s <= self._now_s < fault.until_s:
                w = self._names.index(fault.way)
                home = active % self._ways[w].drafters
                hit = np.ones(len(active), bool) if fault.drafter is None else home == fault.drafter
                bad |= (way == w) & hit[:, None]
        return bad

    def gather(
        self, active: Ints, clock: Floats, way: Ints, depth: Ints, patience: Floats
    ) -> tuple[Floats, Bools]:
        """Seconds each verifier waits for its blocks, and which places go without. way -1: none.

        A verifier's own drafting is time it cannot step in and is never late."""
        waited, late = np.zeros(len(active)), np.zeros(way.shape, bool)
        self._now_s = max(self._now_s, float(clock.min()))
        for w, of in enumerate(self._ways):
            mine = way == w
            sessions = mine.sum(axis=1)
            asking = np.flatnonzero(sessions)
            if not asking.size:
                continue
            deepest = np.where(mine, depth, 0).max(axis=1)
            took = of.base_s + of.session_s * sessions[asking] + of.token_s * deepest[asking]
            if of.remote:
                arrival, known = self._remote(
                    w, active[asking], clock[asking], took, sessions[asking], patience[asking]
                )
                exposed = np.where(known, 0.0, np.minimum(arrival, patience[asking]))
            else:
                arrival = exposed = took
                known = np.zeros(len(took), bool)
            missing = arrival > exposed
            late[asking[missing]] |= mine[asking[missing]]
            waited[asking] += exposed
            if not known.all():
                mean = float(exposed[~known].mean())
                old = self._exposed.get(self._names[w], mean)
                self._exposed[self._names[w]] = old + _NEWEST * (mean - old)
        return waited, late

    def _remote(
        self,
        w: int,
        verifiers: Ints,
        clock: Floats,
        took: Floats,
        sessions: Ints,
        patience: Floats,
    ) -> tuple[Floats, Bools]:
        """Seconds from ask to block, and whose drafter is known to be dead. Frames of one drafter
        are served in the order of their time: turn by turn over all drafters at once. One whose
        turn comes after its verifier has gone on is overtaken by the next ask and not drafted."""
        wire, of = self._scenario.wire, self._ways[w]
        home, dead, known, slow = self._homes(w, verifiers)
        took = took * slow
        size = sessions * (48.0 + of.feature_bytes)
        way_s = wire.rtt_s / 2 + size / wire.bytes_s
        if wire.jitter:
            way_s = way_s + self._rng.exponential(wire.jitter * wire.rtt_s / 2, len(way_s))
        arrival = np.full(len(verifiers), math.inf)
        order = np.lexsort((clock, home))
        turn = _ranks(home[order])
        for k in range(int(turn.max(initial=-1)) + 1):
            now = order[(turn == k) & ~dead[order]]
            start = np.maximum(clock[now] + way_s[now], self._free[w][home[now]])
            keep = start <= clock[now] + patience[now]
            now, start = now[keep], start[keep]
            self._free[w][home[now]] = start + took[now]
            self._busy[w] += float(took[now].sum())
            arrival[now] = start + took[now] + wire.rtt_s / 2 - clock[now]
        return arrival, known

    def _homes(self, w: int, verifiers: Ints) -> tuple[Ints, Bools, Bools, Floats]:
        """Each verifier's drafter, whether that is dead, whether that is known (then nobody of
        the way is alive), and how many times slower it is."""
        count = self._ways[w].drafters
        isolated, down = np.zeros(count, bool), np.zeros(count, bool)
        slow = np.ones(count)
        for fault in self._scenario.faults:
            if fault.way != self._names[w] or not fault.at_s <= self._now_s < fault.until_s:
                continue
            hit = slice(None) if fault.drafter is None else slice(fault.drafter, fault.drafter + 1)
            if fault.kind == "dead":
                down[hit] = True
                isolated[hit] = self._now_s - fault.at_s >= NOTICED_S
            elif fault.kind == "slow":
                slow[hit] = fault.factor
        taken = np.flatnonzero(~isolated)
        home = taken[verifiers % len(taken)] if taken.size else verifiers % count
        return home, down[home], isolated[home], slow[home]

    def _acceptance(self) -> tuple[Floats, Floats]:
        cohorts = list(self._scenario.cohorts)
        alive = np.zeros((len(self._ways) + 1, len(cohorts), self.most))
        found = np.zeros((len(self._ways) + 1, len(cohorts)))
        for w, way in enumerate(self._ways):
            for c, cohort in enumerate(cohorts):
                if not (rates := way.acceptance.get(cohort)):
                    continue
                found[w, c] = way.found.get(cohort, 1.0)
                chain = [rates[min(k, len(rates) - 1)] for k in range(self.most)]
                alive[w, c] = np.cumprod(chain)
        return alive, found


def _ranks(ordered: Ints) -> Ints:
    """Of a sorted array, each element's place among its equals."""
    if not ordered.size:
        return ordered
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    first = np.zeros(len(ordered), np.int64)
    first[starts] = starts
    return np.arange(len(ordered)) - np.maximum.accumulate(first)
