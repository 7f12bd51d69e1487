"""The policy actor: leases and reports in, versioned snapshots out.

A plain object that one thread calls; the cluster layer gives it a process. Verifiers keep their
newest snapshot while it is down, so a restart must never look like the loss of every drafter:
a young policy stays silent until the drafters it expects have registered, or one lease has
passed and the missing ones are missing indeed. What else it knew comes back by itself: verifiers
report totals, and the configuration of their newest snapshot (`policies.pooled`, `policies.live`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from actors.policy import messages
from actors.policy.errors import ReportRefused, Superseded
from actors.policy.learnt import Learnt
from actors.policy.options import PolicyOptions
from pilotfish.v1 import control_pb2 as pb
from policies import exchange_rate, leases, live, reign
from policies.live import Settings

logger = logging.getLogger(__name__)

MAX_VERIFIERS = 1024


class PolicyService:
    """`clock` gives monotonic seconds, `clock_ns` ns since the epoch; `term`: by default of the
    latter. state: what an earlier one kept."""

    def __init__(
        self,
        options: PolicyOptions,
        *,
        term: int | None = None,
        state: pb.PolicyState | None = None,
        clock: Callable[[], float] = time.monotonic,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._options = options
        self._clock = clock
        self._clock_ns = clock_ns
        self._started_s = clock()
        self._leases: leases.Leases = {}
        self._version = 1
        self._settled = options.expected_drafters == 0
        self._verifiers: dict[str, tuple[float, pb.VerifierStatus]] = {}
        self._pause_s = exchange_rate.pause_s(0)
        self._learnt = Learnt()
        self._reign = reign.Reign(clock_ns() if term is None else term)
        self._live = live.deployed(None, Settings(options.depth))
        self._made: pb.PolicySnapshot | None = None
        if state is not None:
            self._restore(state)

    # ------------------------------------------------------------------ drafters

    def renew(self, endpoint: pb.DrafterEndpoint) -> None:
        """Register a drafter or renew its lease. Raises Superseded."""
        self.check_reign()
        lease = leases.Lease(
            name=endpoint.drafter,
            address=endpoint.address,
            mechanism=endpoint.mechanism,
            pid=endpoint.pid,
            max_sessions=endpoint.max_sessions,
            pool=endpoint.pool,
            draining=endpoint.draining,
        )
        table, changed = leases.renew(
            self._leases, lease, now_s=self._clock(), ttl_s=self._options.lease_s
        )
        self._replace(table, changed)

    def release(self, drafter: str) -> None:
        """A drafter leaves of its own accord: verifiers hear of it with the next exchange.
        Raises Superseded."""
        self.check_reign()
        self._replace(*leases.release(self._leases, drafter))

    # ------------------------------------------------------------------ verifiers

    def exchange(
        self, report: pb.VerifierStatus, term: int, version: int
    ) -> pb.PolicySnapshot | None:
        """A verifier's load and tallies against what is newer than its (term, version), or None.

        Raises ReportRefused for tallies or a configuration that cannot be, and Superseded where
        the verifier has heard of a later policy actor; nothing is then taken of the report. Once
        nobody else answers it, this one does again.
        """
        self._hear_term(term, version)
        self._hear_refusals(report.superseded)
        self.check_reign()
        heard = messages.live_of(report.config) if report.HasField("config") else self._live
        self._learnt.hear(report, self._clock())
        self._take(live.newer(self._live, heard))
        self._remember(report)
        newest = self.snapshot()
        if newest is None or (newest.term, newest.version) <= (term, version):
            return None
        self._reign = reign.spoke(self._reign)
        return newest

    def snapshot(self) -> pb.PolicySnapshot | None:
        """None while a young policy still waits for its drafters. Not to be changed by callers."""
        now_s = self._clock()
        self._replace(*leases.expire(self._leases, now_s=now_s))
        if not self._settled:
            waited = now_s - self._started_s >= self._options.lease_s
            self._settled = waited or len(self._leases) >= self._options.expected_drafters
            if not self._settled:
                return None
        self._version += self._learnt.publish(now_s)
        made = self._made
        if made is None or (made.term, made.version) != (self._reign.term, self._version):
            made = self._made = self._make()
        return made

    # ------------------------------------------------------------------ operators

    @property
    def settings(self) -> Settings:
        """The configuration in force."""
        return self._live.settings

    def deploy(self, settings: Settings) -> None:
        """The deployment's configuration, at the start or in its place; what was changed since
        the same one was deployed stays."""
        now_ns = self._clock_ns() if self._reign.spoken else 0
        self._take(live.deployed(self._live, settings, now_ns))

    def configure(self, settings: Settings) -> None:
        """An operator's change; takes effect with each verifier's next exchange, and survives
        this actor. Raises Superseded."""
        self.check_reign()
        self._take(live.changed(self._live, settings, self._clock_ns()))

    def status(self) -> pb.Status:
        """The newest snapshot and each verifier's last report. Raises Superseded."""
        self.check_reign()
        self._forget()
        reports = [self._verifiers[name][1] for name in sorted(self._verifiers)]
        return pb.Status(snapshot=self.snapshot(), verifiers=reports)

    def state(self) -> pb.PolicyState:
        """What a successor goes on from. Raises Superseded: the state is the other's to keep."""
        self.check_reign()
        return pb.PolicyState(
            term=self._reign.term,
            config=messages.config_message(self._live),
            contributions=self._learnt.kept(self._clock()),
        )

    def check_reign(self) -> None:
        """Raises Superseded where another policy actor speaks."""
        if self._reign.over:
            raise Superseded(f"the policy actor of term {self._reign.successor} has taken over")

    # ------------------------------------------------------------------ parts

    def _restore(self, state: pb.PolicyState) -> None:
        """A successor's term is larger than what was kept, whatever its clock says."""
        self._hear_term(state.term, self._version + 1)
        self._learnt.restore(state.contributions, self._clock())
        try:
            self._live = messages.live_of(state.config)
        except ReportRefused as error:
            logger.warning("the kept configuration cannot be, and is not taken: %s", error)

    def _hear_term(self, term: int, version: int) -> None:
        was_over = self._reign.over
        self._reign = reign.heard(self._reign, self._version, term, version)
        if self._reign.over and not was_over:
            logger.error(
                "a policy actor of term %d speaks; this one, of term %d, is silent from now on",
                self._reign.successor,
                self._reign.term,
            )

    def _hear_refusals(self, refusals: int) -> None:
        """Where the successor is gone this one begins as a young policy does: drafters register
        again before it speaks."""
        before, self._reign = self._reign, reign.deserted(self._reign, refusals)
        if self._reign == before:
            return
        logger.warning(
            "the policy actor of term %d answers nobody any more; this one begins term %d",
            before.successor,
            self._reign.term,
        )
        self._leases = {}
        self._started_s = self._clock()
        self._settled = self._options.expected_drafters == 0

    def _make(self) -> pb.PolicySnapshot:
        fallback, cohorts = live.plans(
            self._live.settings,
            most=self._options.depth,
            drafters_up=len(self._leases),
            colocated=self._options.colocated,
        )
        return pb.PolicySnapshot(
            term=self._reign.term,
            version=self._version,
            drafters=[_endpoint(self._leases[name]) for name in sorted(self._leases)],
            fallback=messages.plan_message(fallback),
            cohorts=[messages.plan_message(plan, cohort) for cohort, plan in cohorts.items()],
            config=messages.config_message(self._live),
            pooled=self._learnt.published,
            exchange_ms=round(1e3 * self._pause_s),
        )

    def _take(self, newest: live.Live) -> None:
        self._version += newest != self._live
        self._live = newest

    def _forget(self) -> None:
        horizon = self._clock() - exchange_rate.forget_s(len(self._verifiers))
        self._verifiers = {k: v for k, v in self._verifiers.items() if v[0] > horizon}

    def _remember(self, report: pb.VerifierStatus) -> None:
        if report.verifier not in self._verifiers:
            self._forget()
        if report.verifier in self._verifiers or len(self._verifiers) < MAX_VERIFIERS:
            load = pb.VerifierStatus()
            load.CopyFrom(report)
            del load.tallies[:]
            self._verifiers[report.verifier] = (self._clock(), load)
        pause_s = exchange_rate.pause_s(len(self._verifiers))
        self._version += pause_s != self._pause_s
        self._pause_s = pause_s

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
        pool=lease.pool,
        draining=lease.draining,
    )
