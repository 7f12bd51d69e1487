from pilotfish.v1 import decisions_pb2 as _decisions_pb2
from pilotfish.v1 import demand_pb2 as _demand_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PolicySnapshot(_message.Message):
    __slots__ = ("term", "version", "drafters", "cohorts", "fallback", "config", "pooled", "exchange_ms")
    TERM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DRAFTERS_FIELD_NUMBER: _ClassVar[int]
    COHORTS_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    POOLED_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_MS_FIELD_NUMBER: _ClassVar[int]
    term: int
    version: int
    drafters: _containers.RepeatedCompositeFieldContainer[DrafterEndpoint]
    cohorts: _containers.RepeatedCompositeFieldContainer[CohortPlan]
    fallback: CohortPlan
    config: PolicyConfig
    pooled: _containers.RepeatedCompositeFieldContainer[Tally]
    exchange_ms: int
    def __init__(self, term: _Optional[int] = ..., version: _Optional[int] = ..., drafters: _Optional[_Iterable[_Union[DrafterEndpoint, _Mapping]]] = ..., cohorts: _Optional[_Iterable[_Union[CohortPlan, _Mapping]]] = ..., fallback: _Optional[_Union[CohortPlan, _Mapping]] = ..., config: _Optional[_Union[PolicyConfig, _Mapping]] = ..., pooled: _Optional[_Iterable[_Union[Tally, _Mapping]]] = ..., exchange_ms: _Optional[int] = ...) -> None: ...

class PolicyConfig(_message.Message):
    __slots__ = ("off", "depth", "control", "cohorts", "base", "changed")
    OFF_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    COHORTS_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    off: bool
    depth: int
    control: ControlWindows
    cohorts: _containers.RepeatedCompositeFieldContainer[CohortLimit]
    base: int
    changed: int
    def __init__(self, off: bool = ..., depth: _Optional[int] = ..., control: _Optional[_Union[ControlWindows, _Mapping]] = ..., cohorts: _Optional[_Iterable[_Union[CohortLimit, _Mapping]]] = ..., base: _Optional[int] = ..., changed: _Optional[int] = ...) -> None: ...

class ControlWindows(_message.Message):
    __slots__ = ("steps", "period")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    PERIOD_FIELD_NUMBER: _ClassVar[int]
    steps: int
    period: int
    def __init__(self, steps: _Optional[int] = ..., period: _Optional[int] = ...) -> None: ...

class CohortLimit(_message.Message):
    __slots__ = ("cohort", "depth")
    COHORT_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    cohort: str
    depth: int
    def __init__(self, cohort: _Optional[str] = ..., depth: _Optional[int] = ...) -> None: ...

class Tally(_message.Message):
    __slots__ = ("cohort", "mechanism", "decided", "accepted", "asked", "came")
    COHORT_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    CAME_FIELD_NUMBER: _ClassVar[int]
    cohort: str
    mechanism: str
    decided: _containers.RepeatedScalarFieldContainer[float]
    accepted: _containers.RepeatedScalarFieldContainer[float]
    asked: _containers.RepeatedScalarFieldContainer[float]
    came: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, cohort: _Optional[str] = ..., mechanism: _Optional[str] = ..., decided: _Optional[_Iterable[float]] = ..., accepted: _Optional[_Iterable[float]] = ..., asked: _Optional[_Iterable[float]] = ..., came: _Optional[_Iterable[float]] = ...) -> None: ...

class DrafterEndpoint(_message.Message):
    __slots__ = ("drafter", "address", "mechanism", "pid", "max_sessions", "draining", "pool")
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    drafter: str
    address: str
    mechanism: str
    pid: int
    max_sessions: int
    draining: bool
    pool: str
    def __init__(self, drafter: _Optional[str] = ..., address: _Optional[str] = ..., mechanism: _Optional[str] = ..., pid: _Optional[int] = ..., max_sessions: _Optional[int] = ..., draining: bool = ..., pool: _Optional[str] = ...) -> None: ...

class CohortPlan(_message.Message):
    __slots__ = ("cohort", "mechanism", "depth", "reason")
    COHORT_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    cohort: str
    mechanism: str
    depth: int
    reason: str
    def __init__(self, cohort: _Optional[str] = ..., mechanism: _Optional[str] = ..., depth: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Status(_message.Message):
    __slots__ = ("snapshot", "verifiers")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    VERIFIERS_FIELD_NUMBER: _ClassVar[int]
    snapshot: PolicySnapshot
    verifiers: _containers.RepeatedCompositeFieldContainer[VerifierStatus]
    def __init__(self, snapshot: _Optional[_Union[PolicySnapshot, _Mapping]] = ..., verifiers: _Optional[_Iterable[_Union[VerifierStatus, _Mapping]]] = ...) -> None: ...

class VerifierStatus(_message.Message):
    __slots__ = ("verifier", "pid", "running", "waiting", "free_blocks", "total_blocks", "links", "engine", "cached_blocks", "executor", "executor_reason", "tallies", "tally_sequence", "config", "cohorts", "wishes", "superseded")
    VERIFIER_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    FREE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    LINKS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    CACHED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_REASON_FIELD_NUMBER: _ClassVar[int]
    TALLIES_FIELD_NUMBER: _ClassVar[int]
    TALLY_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    COHORTS_FIELD_NUMBER: _ClassVar[int]
    WISHES_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDED_FIELD_NUMBER: _ClassVar[int]
    verifier: str
    pid: int
    running: int
    waiting: int
    free_blocks: int
    total_blocks: int
    links: _containers.RepeatedCompositeFieldContainer[LinkStatus]
    engine: EngineTotals
    cached_blocks: int
    executor: str
    executor_reason: str
    tallies: _containers.RepeatedCompositeFieldContainer[Tally]
    tally_sequence: int
    config: PolicyConfig
    cohorts: _containers.RepeatedCompositeFieldContainer[_decisions_pb2.CohortFigures]
    wishes: _containers.RepeatedCompositeFieldContainer[_demand_pb2.DraftWish]
    superseded: int
    def __init__(self, verifier: _Optional[str] = ..., pid: _Optional[int] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., free_blocks: _Optional[int] = ..., total_blocks: _Optional[int] = ..., links: _Optional[_Iterable[_Union[LinkStatus, _Mapping]]] = ..., engine: _Optional[_Union[EngineTotals, _Mapping]] = ..., cached_blocks: _Optional[int] = ..., executor: _Optional[str] = ..., executor_reason: _Optional[str] = ..., tallies: _Optional[_Iterable[_Union[Tally, _Mapping]]] = ..., tally_sequence: _Optional[int] = ..., config: _Optional[_Union[PolicyConfig, _Mapping]] = ..., cohorts: _Optional[_Iterable[_Union[_decisions_pb2.CohortFigures, _Mapping]]] = ..., wishes: _Optional[_Iterable[_Union[_demand_pb2.DraftWish, _Mapping]]] = ..., superseded: _Optional[int] = ...) -> None: ...

class PolicyState(_message.Message):
    __slots__ = ("term", "config", "contributions")
    TERM_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    CONTRIBUTIONS_FIELD_NUMBER: _ClassVar[int]
    term: int
    config: PolicyConfig
    contributions: _containers.RepeatedCompositeFieldContainer[Contribution]
    def __init__(self, term: _Optional[int] = ..., config: _Optional[_Union[PolicyConfig, _Mapping]] = ..., contributions: _Optional[_Iterable[_Union[Contribution, _Mapping]]] = ...) -> None: ...

class Contribution(_message.Message):
    __slots__ = ("verifier", "sequence", "age_s", "tallies")
    VERIFIER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    TALLIES_FIELD_NUMBER: _ClassVar[int]
    verifier: str
    sequence: int
    age_s: float
    tallies: _containers.RepeatedCompositeFieldContainer[Tally]
    def __init__(self, verifier: _Optional[str] = ..., sequence: _Optional[int] = ..., age_s: _Optional[float] = ..., tallies: _Optional[_Iterable[_Union[Tally, _Mapping]]] = ...) -> None: ...

class EngineTotals(_message.Message):
    __slots__ = ("steps", "tokens", "drafted", "accepted", "prefill_tokens", "preemptions", "busy_s", "forward_s", "wait_s", "sample_s", "prefix_queries", "prefix_hits")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    BUSY_S_FIELD_NUMBER: _ClassVar[int]
    FORWARD_S_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_S_FIELD_NUMBER: _ClassVar[int]
    PREFIX_QUERIES_FIELD_NUMBER: _ClassVar[int]
    PREFIX_HITS_FIELD_NUMBER: _ClassVar[int]
    steps: int
    tokens: int
    drafted: int
    accepted: int
    prefill_tokens: int
    preemptions: int
    busy_s: float
    forward_s: float
    wait_s: float
    sample_s: float
    prefix_queries: int
    prefix_hits: int
    def __init__(self, steps: _Optional[int] = ..., tokens: _Optional[int] = ..., drafted: _Optional[int] = ..., accepted: _Optional[int] = ..., prefill_tokens: _Optional[int] = ..., preemptions: _Optional[int] = ..., busy_s: _Optional[float] = ..., forward_s: _Optional[float] = ..., wait_s: _Optional[float] = ..., sample_s: _Optional[float] = ..., prefix_queries: _Optional[int] = ..., prefix_hits: _Optional[int] = ...) -> None: ...

class LinkStatus(_message.Message):
    __slots__ = ("drafter", "mechanism", "up", "pid", "frames_sent", "frames_received", "blocks_used", "blocks_stale", "blocks_late", "blocks_answered", "draft_s", "block_s", "state", "detail")
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    FRAMES_SENT_FIELD_NUMBER: _ClassVar[int]
    FRAMES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_USED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_STALE_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_LATE_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_ANSWERED_FIELD_NUMBER: _ClassVar[int]
    DRAFT_S_FIELD_NUMBER: _ClassVar[int]
    BLOCK_S_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    drafter: str
    mechanism: str
    up: bool
    pid: int
    frames_sent: int
    frames_received: int
    blocks_used: int
    blocks_stale: int
    blocks_late: int
    blocks_answered: int
    draft_s: float
    block_s: float
    state: str
    detail: str
    def __init__(self, drafter: _Optional[str] = ..., mechanism: _Optional[str] = ..., up: bool = ..., pid: _Optional[int] = ..., frames_sent: _Optional[int] = ..., frames_received: _Optional[int] = ..., blocks_used: _Optional[int] = ..., blocks_stale: _Optional[int] = ..., blocks_late: _Optional[int] = ..., blocks_answered: _Optional[int] = ..., draft_s: _Optional[float] = ..., block_s: _Optional[float] = ..., state: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...
