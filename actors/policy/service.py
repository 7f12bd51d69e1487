"""The policy actor: leases in, versioned snapshots out.

A plain object that one thread calls; the cluster layer gives it a process. Verifiers keep their
newest snapshot while it is down, so a restart must never look like the loss of every drafter:
a young policy stays silent until the drafters it expects have registered, or one lease has
passed and the missing ones are missing indeed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pilotfish.v1 import control_pb2 as pb
from policies import draftlength, leases

MAX_VERIFIERS = 1024
FORGET_VERIFIER_S = 10.0


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """depth: the configured D. expected_drafters: how many to wait for after a start.
    lease_s: a drafter that has not renewed for so long is gone."""

    depth: int
    colocated: bool = False
    expected_drafters: int = 0
    lease_s: float = 3.0


class PolicyService:
    """`clock` gives monotonic seconds; `term` must be larger than any earlier policy's."""

    def __init__(
        self,
        options: PolicyOptions,
        *,
        term: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._depth = options.depth
        self._term = time.time_ns() if term is None else term
        self._clock = clock
        self._started_s = clock()
        self._leases: leases.Leases = {}
        self._version = 1
        self._settled = options.expected_drafters == 0
        self._verifiers: dict[str, tuple[float, pb.VerifierStatus]] = {}

    # ------------------------------------------------------------------ drafters

    def renew(self, endpoint: pb.DrafterEndpoint) -> None:
        """Register a drafter or renew its lease."""
        lease = leases.Lease(
            name=endpoint.drafter,
            address=endpoint.address,
            mechanism=endpoint.mechanism,
            pid=endpoint.pid,
            max_sessions=endpoint.max_sessions,
        )
        table, changed = leases.renew(
            self._leases, lease, now_s=self._clock(), ttl_s=self._options.lease_s
        )
        self._replace(table, changed)

    def release(self, drafter: str) -> None:
        """A drafter leaves of its own accord: verifiers hear of it with the next exchange."""
        self._replace(*leases.release(self._leases, drafter))

    # ------------------------------------------------------------------ verifiers

    def exchange(
        self, report: pb.VerifierStatus, term: int, version: int
    ) -> pb.PolicySnapshot | None:
        """A verifier's load against what is newer than its (term, version), or None."""
        self._remember(report)
        newest = self.snapshot()
        if newest is None or (newest.term, newest.version) <= (term, version):
            return None
        return newest

    def snapshot(self) -> pb.PolicySnapshot | None:
        """None while a young policy still waits for its drafters."""
        now_s = self._clock()
        self._replace(*leases.expire(self._leases, now_s=now_s))
        if not self._settled:
            waited = now_s - self._started_s >= self._options.lease_s
            self._settled = waited or len(self._leases) >= self._options.expected_drafters
            if not self._settled:
                return None
        plan = draftlength.fixed(
            self._depth, drafters_up=len(self._leases), colocated=self._options.colocated
        )
        return pb.PolicySnapshot(
            term=self._term,
            version=self._version,
            drafters=[_endpoint(self._leases[name]) for name in sorted(self._leases)],
            fallback=pb.CohortPlan(mechanism=plan.mechanism, depth=plan.depth, reason=plan.reason),
        )

    # ------------------------------------------------------------------ operators

    def configure(self, depth: int) -> None:
        """A new D takes effect with each verifier's next exchange."""
        if depth < 0:
            raise ValueError(f"num_speculative_tokens is {depth}; it cannot be negative")
        self._version += depth != self._depth
        self._depth = depth

    def status(self) -> pb.Status:
        """The newest snapshot and each verifier's last report."""
        self._forget()
        reports = [self._verifiers[name][1] for name in sorted(self._verifiers)]
        return pb.Status(snapshot=self.snapshot(), verifiers=reports)

    def _forget(self) -> None:
        horizon = self._clock() - FORGET_VERIFIER_S
        self._verifiers = {k: v for k, v in self._verifiers.items() if v[0] > horizon}

    def _remember(self, report: pb.VerifierStatus) -> None:
        self._forget()
        if report.verifier in self._verifiers or len(self._verifiers) < MAX_VERIFIERS:
            self._verifiers[report.verifier] = (self._clock(), report)

    def _replace(self, table: leases.Leases, changed: bool) -> None:
        self._leases = table
        self._version += changed


def _endpoint(lease: leases.Lease) -> pb.DrafterEndpoint:
    return pb.DrafterEndpoint(
        drafter=lease.name,
        address=lease.address,
        mechanism=lease.mechanism,
        pid=lease.pid,
        max_sessions=lease.max_sessions,
    )
