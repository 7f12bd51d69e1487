"""A fleet: up to thousands of verifiers, each step of all of them computed at once with numpy.

Each verifier has its own clock. Time is cut into slices: at the start of one, arrivals are placed
(the better of two chosen at random); within it, every verifier steps until its clock has passed the
slice. Coarser than `policies.simulate.world` in four things: arrivals to the slice, prompts whole
in one step, blocks that are late are dropped (no stale tails), and the decision is a table's
(`policies.simulate.fleet_plan`) and not each request's own.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from policies.acceptance import Acceptance
from policies.simulate.account import Totals
from policies.simulate.costs import Costs
from policies.simulate.fleet_plan import Entry, Evidence, Planner, counted, probing
from policies.simulate.fleet_pools import Pools
from policies.simulate.scenario import Phase, Scenario

SLICE_S = 0.01
PLAN_EVERY_S = 0.25
"""Between two tables."""
PROBE_SHARE = 0.01
"""Of verifiers that draft, whatever the table says, where it says nothing is to be drafted."""
KEEP = 0.8
"""Of the counts, from one table to the next."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(slots=True)
class FleetAccount(Totals):
    """Summed over verifiers; the series are by table period. busy: share of the time that a way's
    drafters drafted."""

    tokens_at: list[int] = field(default_factory=list)
    depth_at: list[float] = field(default_factory=list)
    busy: dict[str, float] = field(default_factory=dict)


class Fleet:
    """probes: whether verifiers that draft nothing try one token now and then."""

    def __init__(
        self, scenario: Scenario, costs: Costs, planner: Planner, *, probes: bool = False
    ) -> None:
        self.scenario, self.costs, self.planner = scenario, costs, planner
        self.account = FleetAccount(scenario.duration_s)
        self.cohorts, self.ways = list(scenario.cohorts), list(scenario.ways)
        self._arrivals, self._texts, self._chance = (
            np.random.default_rng((scenario.seed, i)) for i in range(3)
        )
        shape = scenario.verifiers, scenario.max_num_seqs
        self.left: Ints = np.zeros(shape, np.int64)
        self.length: Ints = np.zeros(shape, np.int64)
        self.prompt: Ints = np.zeros(shape, np.int64)  # rows to be read in the next step
        self.cohort: Ints = np.zeros(shape, np.int64)
        self.born: Floats = np.zeros(shape)
        self.first: Floats = np.zeros(shape)
        self.output: Ints = np.zeros(shape, np.int64)
        self.client = np.zeros(shape, bool)
        self.clock: Floats = np.zeros(scenario.verifiers)
        self.queues: list[deque[tuple[int, float, bool]]] = [
            deque() for _ in range(scenario.verifiers)
        ]
        self.queued: Ints = np.zeros(scenario.verifiers, np.int64)
        self._pools = Pools(scenario, self._chance)
        self._counts: dict[tuple[str, str], Acceptance] = {}
        self._recent: dict[tuple[int, int], tuple[Floats, Floats]] = {}
        self._clients: dict[str, int] = {}
        self._probes = probes
        self._entries = self._table()
        self._mark = (0, 0, 0)

    def run(self) -> FleetAccount:
        starts = {phase.start_s: phase for phase in self.scenario.phases}
        phase, planned_s, now_s = self.scenario.phases[0], 0.0, 0.0
        while now_s < self.scenario.duration_s:
            for start_s in [s for s in starts if s <= now_s]:
                phase = starts.pop(start_s)
                self._enter(phase, now_s)
            if now_s - planned_s >= PLAN_EVERY_S:
                planned_s = now_s
                self._publish()
            self._arrive(phase, now_s)
            end_s = min(now_s + SLICE_S, self.scenario.duration_s)
            self._steps(phase, now_s, end_s)
            now_s = end_s
        self._publish()
        self.account.busy = self._pools.busy(self.scenario.duration_s)
        return self.account

    # -- load -------------------------------------------------------------------------------

    def _enter(self, phase: Phase, now_s: float) -> None:
        for cohort, wanted in phase.clients.items():
            more = wanted - self._clients.get(cohort, 0)
            self._clients[cohort] = max(wanted, self._clients.get(cohort, 0))
            for _ in range(more):
                self._place(self.cohorts.index(cohort), now_s, client=True)

    def _arrive(self, phase: Phase, now_s: float) -> None:
        for cohort, rate in phase.rate.items():
            for _ in range(int(self._arrivals.poisson(rate * SLICE_S))):
                self._place(self.cohorts.index(cohort), now_s, client=False)

    def _place(self, cohort: int, now_s: float, *, client: bool) -> None:
        first, second = self._arrivals.integers(0, self.scenario.verifiers, 2)
        load_first = self.queued[first] + np.count_nonzero(self.left[first])
        load_second = self.queued[second] + np.count_nonzero(self.left[second])
        chosen = int(second if load_second < load_first else first)
        self.queues[chosen].append((cohort, now_s, client))
        self.queued[chosen] += 1
        self.account.arrived += 1

    def _admit(self, verifiers: Ints) -> None:
        for v in verifiers[self.queued[verifiers] > 0]:
            for slot in np.flatnonzero(self.left[v] == 0)[: self.queued[v]]:
                cohort, born_s, client = self.queues[v].popleft()
                self.queued[v] -= 1
                of = self.scenario.cohorts[self.cohorts[cohort]]
                vary = 1.0 + of.spread * (2.0 * self._arrivals.random(2) - 1.0)
                self.left[v, slot] = max(1, round(of.output * vary[1]))
                self.prompt[v, slot] = max(1, round(of.prompt * vary[0]))
                self.length[v, slot], self.output[v, slot] = 0, self.left[v, slot]
                self.cohort[v, slot], self.born[v, slot] = cohort, born_s
                self.client[v, slot] = client

    # -- steps ------------------------------------------------------------------------------

    def _steps(self, phase: Phase, now_s: float, end_s: float) -> None:
        np.maximum(self.clock, now_s, out=self.clock)
        while True:
            behind = np.flatnonzero(self.clock < end_s)
            self._admit(behind)
            active = behind[(self.left[behind] > 0).any(axis=1)]
            if not active.size:
                return
            self._step(active)
            self._finish(phase, active)

    def _step(self, active: Ints) -> None:
        """One step of each of these verifiers, in arrays of [verifiers, places]."""
        left, cohort, prompt = self.left[active], self.cohort[active], self.prompt[active]
        running, reading = left > 0, prompt > 0
        writing = running & ~reading
        sequences, writers = running.sum(axis=1), writing.sum(axis=1)
        way, wanted, patience = self._lookup(active, cohort, writers)
        wanted = np.where(writing, np.minimum(wanted, left - 1), 0)
        waited_s, late = self._pools.gather(
            active, self.clock[active], np.where(wanted > 0, way, -1), wanted, patience
        )
        self.account.late += int((late & (wanted > 0)).sum())
        depth = np.where(late, 0, wanted)
        depth, right = self._blocks(active, way, cohort, depth)
        rows = writers + depth.sum(axis=1) + np.where(reading, prompt, 0).sum(axis=1)
        context = np.where(running, self.length[active], 0).sum(axis=1)
        step_s = self.costs.step_s
        took_s = np.array(
            [
                step_s(*sizes)
                for sizes in zip(rows.tolist(), sequences.tolist(), context.tolist(), strict=True)
            ]
        )
        emitted = np.where(running, 1 + right, 0)
        self.clock[active] += waited_s + took_s
        self.left[active] = left - emitted
        self.length[active] += emitted + np.where(reading, prompt, 0)
        self.prompt[active] = 0
        first = reading & running
        if first.any():
            self.first[active] = np.where(first, self.clock[active][:, None], self.first[active])
            born = self.born[active]
            self.account.ttft_s += (self.clock[active][:, None] - born)[first].tolist()
        self.account.steps += len(active)
        self.account.tokens += int(emitted.sum())
        self.account.rounds += int(running.sum())
        self.account.drafted += int(depth.sum())
        self.account.accepted += int(right.sum())
        self.account.waited_s += float(waited_s.sum())

    def _lookup(self, active: Ints, cohort: Ints, writers: Ints) -> tuple[Ints, Ints, Floats]:
        """From the table: way and depth of every place; how long each verifier waits."""
        ways, depths, waits = self._entries
        size = writers[:, None]
        probes = self._chance.random(len(active)) < PROBE_SHARE
        layer = probes.astype(np.int64)[:, None]
        waits_here = np.where(depths[layer, cohort, size] > 0, waits[layer, cohort, size], 0.0)
        return ways[layer, cohort, size], depths[layer, cohort, size], waits_here.max(axis=1)

    def _blocks(self, active: Ints, way: Ints, cohort: Ints, depth: Ints) -> tuple[Ints, Ints]:
        """(tokens that came, how many are right), and counts of them for the next table."""
        alive, found = self._pools.truth()
        draws = self._texts.random((2, *depth.shape))
        depth = np.where(draws[0] < found[way, cohort], depth, 0)
        useless = self._pools.useless(active, way)
        right = np.zeros_like(depth)
        for k in range(int(depth.max(initial=0))):
            right += (depth > k) & ~useless & (draws[1] < alive[way, cohort, k])
        for w in np.unique(way[depth > 0]).tolist():
            for c in np.unique(cohort[(depth > 0) & (way == w)]).tolist():
                mine = (depth > 0) & (way == w) & (cohort == c)
                self._count(c, w, depth[mine], right[mine])
        return depth, right

    def _count(self, cohort: int, way: int, depth: Ints, right: Ints) -> None:
        reach = np.minimum(right + 1, depth)
        most = self._pools.most
        decided = np.bincount(reach, minlength=most + 1)[::-1].cumsum()[::-1][1:]
        accepted = np.bincount(right, minlength=most + 1)[::-1].cumsum()[::-1][1:]
        old = self._recent.get((cohort, way), (np.zeros(most), np.zeros(most)))
        self._recent[cohort, way] = old[0] + decided, old[1] + accepted

    def _finish(self, phase: Phase, active: Ints) -> None:
        done_rows, done_slots = np.nonzero((self.left[active] <= 0) & (self.length[active] > 0))
        for row, slot in zip(active[done_rows].tolist(), done_slots.tolist(), strict=True):
            self.account.finished += 1
            if (more := int(self.output[row, slot]) - 1) > 0:
                taken_s = float(self.clock[row] - self.first[row, slot])
                self.account.tpot_s.append(taken_s / more)
            self.left[row, slot] = self.length[row, slot] = 0
            if not self.client[row, slot]:
                continue
            name = self.cohorts[int(self.cohort[row, slot])]
            if self._clients[name] > phase.clients.get(name, 0):
                self._clients[name] -= 1
            else:
                self._place(int(self.cohort[row, slot]), float(self.clock[row]), client=True)

    # -- tables -----------------------------------------------------------------------------

    def _publish(self) -> None:
        """Add the counts up, compute the next table, and note the period."""
        for (cohort, way), (decided, accepted) in self._recent.items():
            key = self.cohorts[cohort], self.ways[way]
            old = self._counts.get(key, Acceptance())
            self._counts[key] = counted(old, decided.tolist(), accepted.tolist(), KEEP)
        self._recent.clear()
        self._entries = self._table()
        tokens, rounds, drafted = self._mark
        account = self.account
        self.account.tokens_at.append(account.tokens - tokens)
        self.account.depth_at.append((account.drafted - drafted) / max(account.rounds - rounds, 1))
        self._mark = account.tokens, account.rounds, account.drafted

    def _table(self) -> tuple[Ints, Ints, Floats]:
        """ways, depths, waits of [probe or not, cohort, writers]; way -1 is none."""
        evidence = Evidence(self._counts, self._pools.exposed())
        shape = 2, len(self.cohorts), self.scenario.max_num_seqs + 1
        ways, depths, waits = np.full(shape, -1), np.zeros(shape, np.int64), np.zeros(shape)
        entry = cache(lambda cohort, writers: self.planner(evidence, cohort, writers))
        for c, cohort in enumerate(self.cohorts):
            able = [n for n in self.ways if cohort in self.scenario.ways[n].acceptance]
            for writers in range(1, shape[2]):
                found = entry(cohort, _coarse(writers))
                probe = self._probe(able, evidence)
                for layer, chosen in enumerate((found, probing(found, probe))):
                    if chosen.depth:
                        ways[layer, c, writers] = self.ways.index(chosen.way)
                        depths[layer, c, writers] = chosen.depth
                        waits[layer, c, writers] = chosen.patience_s
        return ways, depths, waits

    def _probe(self, able: list[str], evidence: Evidence) -> Entry | None:
        """One token by each way in turn, waited for twice as long as its blocks usually take."""
        if not able or not self._probes:
            return None
        name = able[len(self.account.tokens_at) % len(able)]
        usual_s = evidence.exposed_s.get(name, self.scenario.ways[name].block_s(1, 1))
        return Entry(name, 1, 2.0 * usual_s + self.scenario.wire.rtt_s)


def _coarse(writers: int) -> int:
    """Batches above 8 share their entry with the next lower multiple of an eighth of their size."""
    grain = max(1, 1 << max(0, writers.bit_length() - 4))
    return writers - writers % grain
