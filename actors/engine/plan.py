"""Which D a request gets next: the newest policy snapshot, cut to what the request allows."""

from __future__ import annotations

from typing import NamedTuple

from pilotfish.v1 import control_pb2 as control


class Depth(NamedTuple):
    """D for the next round; `reason` says why when it is 0."""

    tokens: int
    reason: str = ""


class Plan:
    """The verifier's copy of the policy. Newer (term, version) only; the newest is kept while the
    policy actor is down."""

    def __init__(self, depth: int = 0) -> None:
        self.snapshot = control.PolicySnapshot(
            fallback=control.CohortPlan(depth=depth, reason="configured")
        )
        self._cohorts: dict[str, control.CohortPlan] = {}
        self.most = depth
        """The largest D of any cohort."""

    def update(self, snapshot: control.PolicySnapshot) -> bool:
        """Take the snapshot if it is newer; says whether it was."""
        newest = (self.snapshot.term, self.snapshot.version)
        if (snapshot.term, snapshot.version) <= newest:
            return False
        self.snapshot = snapshot
        self._cohorts = {plan.cohort: plan for plan in snapshot.cohorts}
        self.most = max(plan.depth for plan in (snapshot.fallback, *snapshot.cohorts))
        return True

    def depth(self, cohort: str, wish: int | None, remaining: int) -> Depth:
        """D for a request of `cohort` whose client bounds it by `wish` and which may still write
        `remaining` tokens: a round writes up to D + 1, so D <= remaining - 1 (pitfalls S35)."""
        plan = self._cohorts.get(cohort, self.snapshot.fallback)
        if wish == 0:
            return Depth(0, "client")
        if plan.depth == 0:
            return Depth(0, plan.reason or "depth-0")
        if remaining <= 1:
            return Depth(0, "limit")
        return Depth(min(plan.depth, remaining - 1, plan.depth if wish is None else wish))
