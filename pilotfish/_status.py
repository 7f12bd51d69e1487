"""What the servers behind the door are doing, as plain records (control.proto)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pilotfish.v1 import control_pb2 as pb
from pilotfish.v1 import decisions_pb2


@dataclass(frozen=True, slots=True)
class DrafterStatus:
    """A drafter whose lease is valid."""

    drafter: str
    address: str
    mechanism: str
    pid: int
    max_sessions: int


@dataclass(frozen=True, slots=True)
class CohortPlan:
    """How one cohort is served. depth 0 is standard decode; mechanism "" is any."""

    cohort: str
    mechanism: str
    depth: int
    reason: str


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One verifier's view of one drafter. draft_s, block_s: of blocks_answered blocks, the
    seconds it took to compute them and those from asking to arrival, sums. state: "connecting",
    "up", "down", "refused" or "isolated"; detail says why it is not up."""

    drafter: str
    mechanism: str
    up: bool
    pid: int
    frames_sent: int
    frames_received: int
    blocks_used: int
    blocks_stale: int
    blocks_late: int
    blocks_answered: int = 0
    draft_s: float = 0.0
    block_s: float = 0.0
    state: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EngineTotals:
    """Of one engine since its start. steps: forwards; busy_s: seconds inside rounds, of them
    forward_s inside the model's forward, sample_s choosing tokens, wait_s waiting for blocks."""

    steps: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    prefill_tokens: int = 0
    preemptions: int = 0
    busy_s: float = 0.0
    forward_s: float = 0.0
    wait_s: float = 0.0
    sample_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """How often a verifier decided this for a cohort, in requests times steps. mechanism and
    placement are empty where nothing was drafted."""

    mechanism: str
    placement: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class CohortFigures:
    """What one verifier has decided for a cohort since its start. depths: the newest D by
    mechanism. ratio: speed against standard decode with its 95% interval, (ratio, low, high); None
    while it has not been measured. alarms: changes of texts or costs that were noticed."""

    cohort: str
    decisions: tuple[Decision, ...]
    depths: Mapping[str, int]
    ratio: tuple[float, float, float] | None
    alarms: int


@dataclass(frozen=True, slots=True)
class VerifierStatus:
    """executor: what computes: "native", "eager", or "building" (eager until it is native)."""

    verifier: str
    pid: int
    running: int
    waiting: int
    free_blocks: int
    total_blocks: int
    links: tuple[LinkStatus, ...]
    engine: EngineTotals = EngineTotals()
    executor: str = ""
    executor_reason: str = ""
    cohorts: tuple[CohortFigures, ...] = ()


@dataclass(frozen=True, slots=True)
class Status:
    """(term, version) of the newest policy snapshot, and what it says."""

    term: int
    version: int
    fallback: CohortPlan
    cohorts: tuple[CohortPlan, ...]
    drafters: tuple[DrafterStatus, ...]
    verifiers: tuple[VerifierStatus, ...]


def status_of(message: pb.Status) -> Status:
    snapshot = message.snapshot
    return Status(
        term=snapshot.term,
        version=snapshot.version,
        fallback=_plan(snapshot.fallback),
        cohorts=tuple(_plan(plan) for plan in snapshot.cohorts),
        drafters=tuple(
            DrafterStatus(d.drafter, d.address, d.mechanism, d.pid, d.max_sessions)
            for d in snapshot.drafters
        ),
        verifiers=tuple(_verifier(verifier) for verifier in message.verifiers),
    )


def _plan(plan: pb.CohortPlan) -> CohortPlan:
    return CohortPlan(plan.cohort, plan.mechanism, plan.depth, plan.reason)


def _verifier(message: pb.VerifierStatus) -> VerifierStatus:
    return VerifierStatus(
        verifier=message.verifier,
        pid=message.pid,
        running=message.running,
        waiting=message.waiting,
        free_blocks=message.free_blocks,
        total_blocks=message.total_blocks,
        links=tuple(_link(link) for link in message.links),
        engine=_totals(message.engine),
        executor=message.executor,
        executor_reason=message.executor_reason,
        cohorts=tuple(_cohort(figures) for figures in message.cohorts),
    )


def _cohort(message: decisions_pb2.CohortFigures) -> CohortFigures:
    ratio = message.ratio
    return CohortFigures(
        cohort=message.cohort,
        decisions=tuple(
            Decision(d.mechanism, d.placement, d.reason, d.count) for d in message.decisions
        ),
        depths={newest.mechanism: newest.depth for newest in message.depths},
        ratio=(ratio.ratio, ratio.low, ratio.high) if message.HasField("ratio") else None,
        alarms=message.alarms,
    )


def _totals(totals: pb.EngineTotals) -> EngineTotals:
    return EngineTotals(
        steps=totals.steps,
        tokens=totals.tokens,
        drafted=totals.drafted,
        accepted=totals.accepted,
        prefill_tokens=totals.prefill_tokens,
        preemptions=totals.preemptions,
        busy_s=totals.busy_s,
        forward_s=totals.forward_s,
        wait_s=totals.wait_s,
        sample_s=totals.sample_s,
    )


def _link(link: pb.LinkStatus) -> LinkStatus:
    return LinkStatus(
        drafter=link.drafter,
        mechanism=link.mechanism,
        up=link.up,
        pid=link.pid,
        frames_sent=link.frames_sent,
        frames_received=link.frames_received,
        blocks_used=link.blocks_used,
        blocks_stale=link.blocks_stale,
        blocks_late=link.blocks_late,
        blocks_answered=link.blocks_answered,
        draft_s=link.draft_s,
        block_s=link.block_s,
        state=link.state,
        detail=link.detail,
    )
