"""A policy actor, verifiers that exchange with it, and a clock that only tests move."""

from __future__ import annotations

from collections.abc import Sequence

from actors.engine.plan import Plan
from actors.policy.errors import PolicyError, ReportRefused
from actors.policy.messages import totals_of
from actors.policy.options import PolicyOptions
from actors.policy.service import PolicyService
from cluster.deployments.exchanging import Exchanging
from pilotfish.v1 import control_pb2 as pb
from policies.estimate import Estimate, Key, Scored
from policies.pooled import begun
from policies.tally import Tally

CHAT = ("chat", "suffix")
RIGHT = Scored(4, 4, 3)


class Clock:
    """Seconds since something, and ns since the epoch."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def ns(self) -> int:
        return int(self.now_s * 1e9)


def make_service(
    clock: Clock,
    term: int | None = None,
    state: pb.PolicyState | None = None,
    expected: int = 0,
    depth: int = 4,
) -> PolicyService:
    options = PolicyOptions(depth=depth, colocated=True, expected_drafters=expected)
    return PolicyService(options, term=term, state=state, clock=clock, clock_ns=clock.ns)


class Verifier:
    """As `cluster.deployments.verifier` and its engine do it; the answer may get lost."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.exchanging = Exchanging()
        self.plan = Plan(4)
        self.tally = Tally()
        self.step = 0
        self.refused: list[PolicyError] = []

    def learn(self, count: int = 8, key: Key = CHAT, block: Scored = RIGHT) -> None:
        self.step += 1
        self.tally.note(key, [block] * count, self.step)

    def exchange(self, policy: PolicyService | None, *, answer_lost: bool = False) -> None:
        """None: nobody answers."""
        status = pb.VerifierStatus(verifier=self.name, pid=1)
        report = self.exchanging.report(status, self.tally.taken())
        if policy is None:
            return
        report = pb.VerifierStatus.FromString(report.SerializeToString())
        try:
            newer = policy.exchange(report, self.exchanging.term, self.exchanging.version)
        except PolicyError as error:
            self.refused.append(error)
            if isinstance(error, ReportRefused):
                self.exchanging.refused()
            else:
                self.exchanging.superseded()
            return
        if answer_lost:
            return
        snapshot = self.exchanging.answered(newer)
        if snapshot is not None:
            assert self.plan.update(snapshot)
            self.exchanging.taken(snapshot)

    @property
    def heard(self) -> tuple[int, int]:
        return self.plan.snapshot.term, self.plan.snapshot.version

    @property
    def depth(self) -> int:
        return self.plan.depth("chat", None, 100).tokens

    def begins(self, cohorts: Sequence[str] = ("chat",)) -> dict[Key, Estimate]:
        """What it would begin from now."""
        return begun({}, totals_of(self.plan.snapshot.pooled, pooled=True), cohorts, 0)


def pooled_blocks(policy: PolicyService, key: Key = CHAT) -> float:
    """Of the newest snapshot."""
    snapshot = policy.snapshot()
    assert snapshot is not None
    totals = totals_of(snapshot.pooled, pooled=True)
    return totals[key].blocks if key in totals else 0.0
