"""A whole scenario, event by event: arrivals, verifiers, drafters, faults, until the time is up.

The same scenario, costs and policy give the same run: every source of chance is a stream of its
own from the seed, so what is drafted changes neither who comes nor when.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from policies.simulate.account import Account
from policies.simulate.clock import Clock
from policies.simulate.costs import Costs
from policies.simulate.drafters import Drafting
from policies.simulate.policy import Policy
from policies.simulate.scenario import Phase, Scenario
from policies.simulate.texts import Texts
from policies.simulate.verifier import Row, Verifier


class World:
    """policy: called once for each verifier, with its index."""

    def __init__(self, scenario: Scenario, costs: Costs, policy: Callable[[int], Policy]) -> None:
        self.scenario = scenario
        self.account = Account(scenario.duration_s)
        self.clock = Clock()
        self.drafting = Drafting(scenario, self.clock, Texts(scenario))
        self.verifiers = [
            Verifier(i, scenario, costs, policy(i), self.drafting, self.account, self._finished)
            for i in range(scenario.verifiers)
        ]
        self._rng = np.random.default_rng((scenario.seed, 0))
        self._phase = scenario.phases[0]
        self._clients: dict[str, int] = {}
        self._owners: dict[int, bool] = {}
        self._count = 0

    def run(self) -> Account:
        for phase in self.scenario.phases:
            self.clock.after(phase.start_s, partial(self._enter, phase))
        self.clock.run(self.scenario.duration_s)
        return self.account

    def busy_shares(self) -> dict[str, float]:
        """By way, the share of the time that its drafters drafted."""
        return {
            name: sum(d.busy_s for d in drafters) / len(drafters) / self.scenario.duration_s
            for name, drafters in self.drafting.drafters.items()
        }

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        for cohort, wanted in phase.clients.items():
            for _ in range(wanted - self._clients.get(cohort, 0)):
                self._clients[cohort] = self._clients.get(cohort, 0) + 1
                self._submit(cohort, client=True)
        for cohort in phase.rate:
            self._next_arrival(phase, cohort)

    def _next_arrival(self, phase: Phase, cohort: str) -> None:
        if (rate := phase.rate[cohort]) <= 0.0:
            return
        self.clock.after(self._rng.exponential(1.0 / rate), lambda: self._arrival(phase, cohort))

    def _arrival(self, phase: Phase, cohort: str) -> None:
        if phase is self._phase:
            self._submit(cohort, client=False)
            self._next_arrival(phase, cohort)

    def _submit(self, cohort: str, *, client: bool) -> None:
        of = self.scenario.cohorts[cohort]
        vary = 1.0 + of.spread * (2.0 * self._rng.random(2) - 1.0)
        row = Row(
            self._count,
            cohort,
            max(1, round(of.prompt * vary[0])),
            max(1, round(of.output * vary[1])),
            self.clock.now_s,
        )
        self._owners[row.request] = client
        self._count += 1
        self.account.arrived += 1
        self._least_loaded_of_two().submit(row)

    def _least_loaded_of_two(self) -> Verifier:
        """As Serve routes: the better of two chosen at random (power of two choices)."""
        if len(self.verifiers) == 1:
            return self.verifiers[0]
        pair = self._rng.choice(len(self.verifiers), 2, replace=False)
        first, second = (self.verifiers[int(i)] for i in pair)
        return second if second.load < first.load else first

    def _finished(self, row: Row) -> None:
        now_s = self.clock.now_s
        self.account.finished += 1
        self.account.ttft_s.append(row.first_s - row.arrived_s)
        if row.output > 1:
            self.account.tpot_s.append((now_s - row.first_s) / (row.output - 1))
        if not self._owners.pop(row.request):
            return
        # A client comes back with its next request, unless the phase wants fewer of them.
        if self._clients[row.cohort] > self._phase.clients.get(row.cohort, 0):
            self._clients[row.cohort] -= 1
        else:
            self.clock.after(0.0, lambda: self._submit(row.cohort, client=True))
