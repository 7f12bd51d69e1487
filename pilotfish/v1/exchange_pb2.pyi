from pilotfish.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Lane(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LANE_UNSPECIFIED: _ClassVar[Lane]
    LANE_ROUND: _ClassVar[Lane]
    LANE_BULK: _ClassVar[Lane]

class FaultCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FAULT_UNSPECIFIED: _ClassVar[FaultCode]
    FAULT_UNKNOWN_SESSION: _ClassVar[FaultCode]
    FAULT_GAP: _ClassVar[FaultCode]
    FAULT_INVALID: _ClassVar[FaultCode]
    FAULT_OVERLOADED: _ClassVar[FaultCode]
    FAULT_INTERNAL: _ClassVar[FaultCode]
    FAULT_EVICTED: _ClassVar[FaultCode]

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_STOP: _ClassVar[FinishReason]
    FINISH_LENGTH: _ClassVar[FinishReason]
    FINISH_ABORT: _ClassVar[FinishReason]
    FINISH_ERROR: _ClassVar[FinishReason]

class ErrorKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_UNSPECIFIED: _ClassVar[ErrorKind]
    ERROR_INVALID: _ClassVar[ErrorKind]
    ERROR_OVERLOADED: _ClassVar[ErrorKind]
    ERROR_INTERNAL: _ClassVar[ErrorKind]
    ERROR_DUPLICATE: _ClassVar[ErrorKind]
LANE_UNSPECIFIED: Lane
LANE_ROUND: Lane
LANE_BULK: Lane
FAULT_UNSPECIFIED: FaultCode
FAULT_UNKNOWN_SESSION: FaultCode
FAULT_GAP: FaultCode
FAULT_INVALID: FaultCode
FAULT_OVERLOADED: FaultCode
FAULT_INTERNAL: FaultCode
FAULT_EVICTED: FaultCode
FINISH_UNSPECIFIED: FinishReason
FINISH_STOP: FinishReason
FINISH_LENGTH: FinishReason
FINISH_ABORT: FinishReason
FINISH_ERROR: FinishReason
ERROR_UNSPECIFIED: ErrorKind
ERROR_INVALID: ErrorKind
ERROR_OVERLOADED: ErrorKind
ERROR_INTERNAL: ErrorKind
ERROR_DUPLICATE: ErrorKind

class SessionKey(_message.Message):
    __slots__ = ("request", "epoch")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    request: str
    epoch: int
    def __init__(self, request: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class Compat(_message.Message):
    __slots__ = ("target", "tokenizer", "drafter", "taps", "rule", "projection")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    TAPS_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    PROJECTION_FIELD_NUMBER: _ClassVar[int]
    target: str
    tokenizer: str
    drafter: str
    taps: _containers.RepeatedScalarFieldContainer[int]
    rule: str
    projection: str
    def __init__(self, target: _Optional[str] = ..., tokenizer: _Optional[str] = ..., drafter: _Optional[str] = ..., taps: _Optional[_Iterable[int]] = ..., rule: _Optional[str] = ..., projection: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "verifier", "boot_epoch", "lane", "compat")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERIFIER_FIELD_NUMBER: _ClassVar[int]
    BOOT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    COMPAT_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    verifier: str
    boot_epoch: int
    lane: Lane
    compat: Compat
    def __init__(self, protocol: _Optional[int] = ..., verifier: _Optional[str] = ..., boot_epoch: _Optional[int] = ..., lane: _Optional[_Union[Lane, str]] = ..., compat: _Optional[_Union[Compat, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("key", "tokens", "sampling", "tenant", "features_follow", "trace", "prompt_len")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FOLLOW_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LEN_FIELD_NUMBER: _ClassVar[int]
    key: SessionKey
    tokens: _containers.RepeatedScalarFieldContainer[int]
    sampling: _common_pb2.Sampling
    tenant: str
    features_follow: bool
    trace: _common_pb2.TraceContext
    prompt_len: int
    def __init__(self, key: _Optional[_Union[SessionKey, _Mapping]] = ..., tokens: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_common_pb2.Sampling, _Mapping]] = ..., tenant: _Optional[str] = ..., features_follow: bool = ..., trace: _Optional[_Union[_common_pb2.TraceContext, _Mapping]] = ..., prompt_len: _Optional[int] = ...) -> None: ...

class Features(_message.Message):
    __slots__ = ("key", "from_row", "rows")
    KEY_FIELD_NUMBER: _ClassVar[int]
    FROM_ROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    key: SessionKey
    from_row: int
    rows: _common_pb2.Tensor
    def __init__(self, key: _Optional[_Union[SessionKey, _Mapping]] = ..., from_row: _Optional[int] = ..., rows: _Optional[_Union[_common_pb2.Tensor, _Mapping]] = ...) -> None: ...

class Commit(_message.Message):
    __slots__ = ("key", "round", "from_len", "tokens", "features", "depth", "deadline_us")
    KEY_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    FROM_LEN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_US_FIELD_NUMBER: _ClassVar[int]
    key: SessionKey
    round: int
    from_len: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    features: _common_pb2.Tensor
    depth: int
    deadline_us: int
    def __init__(self, key: _Optional[_Union[SessionKey, _Mapping]] = ..., round: _Optional[int] = ..., from_len: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., features: _Optional[_Union[_common_pb2.Tensor, _Mapping]] = ..., depth: _Optional[int] = ..., deadline_us: _Optional[int] = ...) -> None: ...

class Close(_message.Message):
    __slots__ = ("key", "reason")
    KEY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    key: SessionKey
    reason: str
    def __init__(self, key: _Optional[_Union[SessionKey, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class VerifierFrame(_message.Message):
    __slots__ = ("hello", "opens", "features", "commits", "closes", "ping_ns")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OPENS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    CLOSES_FIELD_NUMBER: _ClassVar[int]
    PING_NS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    opens: _containers.RepeatedCompositeFieldContainer[Open]
    features: _containers.RepeatedCompositeFieldContainer[Features]
    commits: _containers.RepeatedCompositeFieldContainer[Commit]
    closes: _containers.RepeatedCompositeFieldContainer[Close]
    ping_ns: int
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., opens: _Optional[_Iterable[_Union[Open, _Mapping]]] = ..., features: _Optional[_Iterable[_Union[Features, _Mapping]]] = ..., commits: _Optional[_Iterable[_Union[Commit, _Mapping]]] = ..., closes: _Optional[_Iterable[_Union[Close, _Mapping]]] = ..., ping_ns: _Optional[int] = ...) -> None: ...

class Block(_message.Message):
    __slots__ = ("key", "round", "base_len", "tokens", "confidence", "draft_us", "queue_us", "law", "cold")
    KEY_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    BASE_LEN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    DRAFT_US_FIELD_NUMBER: _ClassVar[int]
    QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    LAW_FIELD_NUMBER: _ClassVar[int]
    COLD_FIELD_NUMBER: _ClassVar[int]
    key: SessionKey
    round: int
    base_len: int
    tokens: _containers.RepeatedScalarFieldContainer[int]
    confidence: _containers.RepeatedScalarFieldContainer[float]
    draft_us: int
    queue_us: int
    law: Law
    cold: bool
    def __init__(self, key: _Optional[_Union[SessionKey, _Mapping]] = ..., round: _Optional[int] = ..., base_len: _Optional[int] = ..., tokens: _Optional[_Iterable[int]] = ..., confidence: _Optional[_Iterable[float]] = ..., draft_us: _Optional[int] = ..., queue_us: _Optional[int] = ..., law: _Optional[_Union[Law, _Mapping]] = ..., cold: bool = ...) -> None: ...

class Law(_message.Message):
    __slots__ = ("counts", "ids", "probs")
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    PROBS_FIELD_NUMBER: _ClassVar[int]
    counts: _containers.RepeatedScalarFieldContainer[int]
    ids: bytes
    probs: bytes
    def __init__(self, counts: _Optional[_Iterable[int]] = ..., ids: _Optional[bytes] = ..., probs: _Optional[bytes] = ...) -> None: ...

class Fault(_message.Message):
    __slots__ = ("key", "code", "detail")
    KEY_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    key: SessionKey
    code: FaultCode
    detail: str
    def __init__(self, key: _Optional[_Union[SessionKey, _Mapping]] = ..., code: _Optional[_Union[FaultCode, str]] = ..., detail: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("drafter", "pid", "info")
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    drafter: str
    pid: int
    info: DrafterInfo
    def __init__(self, drafter: _Optional[str] = ..., pid: _Optional[int] = ..., info: _Optional[_Union[DrafterInfo, _Mapping]] = ...) -> None: ...

class DrafterFrame(_message.Message):
    __slots__ = ("welcome", "blocks", "faults", "pong_ns", "load")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    PONG_NS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    blocks: _containers.RepeatedCompositeFieldContainer[Block]
    faults: _containers.RepeatedCompositeFieldContainer[Fault]
    pong_ns: int
    load: DrafterLoad
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., blocks: _Optional[_Iterable[_Union[Block, _Mapping]]] = ..., faults: _Optional[_Iterable[_Union[Fault, _Mapping]]] = ..., pong_ns: _Optional[int] = ..., load: _Optional[_Union[DrafterLoad, _Mapping]] = ...) -> None: ...

class DrafterLoad(_message.Message):
    __slots__ = ("sessions", "busy_share")
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    BUSY_SHARE_FIELD_NUMBER: _ClassVar[int]
    sessions: int
    busy_share: float
    def __init__(self, sessions: _Optional[int] = ..., busy_share: _Optional[float] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DraftTiming(_message.Message):
    __slots__ = ("sessions", "depth", "seconds")
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    sessions: int
    depth: int
    seconds: float
    def __init__(self, sessions: _Optional[int] = ..., depth: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class DrafterInfo(_message.Message):
    __slots__ = ("mechanism", "revision", "vocab_size", "needs_features", "taps", "max_block", "gives_law", "max_context", "max_sessions", "weight_bytes", "token_bytes", "timings")
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FEATURES_FIELD_NUMBER: _ClassVar[int]
    TAPS_FIELD_NUMBER: _ClassVar[int]
    MAX_BLOCK_FIELD_NUMBER: _ClassVar[int]
    GIVES_LAW_FIELD_NUMBER: _ClassVar[int]
    MAX_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    mechanism: str
    revision: str
    vocab_size: int
    needs_features: bool
    taps: _containers.RepeatedScalarFieldContainer[int]
    max_block: int
    gives_law: bool
    max_context: int
    max_sessions: int
    weight_bytes: int
    token_bytes: int
    timings: _containers.RepeatedCompositeFieldContainer[DraftTiming]
    def __init__(self, mechanism: _Optional[str] = ..., revision: _Optional[str] = ..., vocab_size: _Optional[int] = ..., needs_features: bool = ..., taps: _Optional[_Iterable[int]] = ..., max_block: _Optional[int] = ..., gives_law: bool = ..., max_context: _Optional[int] = ..., max_sessions: _Optional[int] = ..., weight_bytes: _Optional[int] = ..., token_bytes: _Optional[int] = ..., timings: _Optional[_Iterable[_Union[DraftTiming, _Mapping]]] = ...) -> None: ...

class GatewayHello(_message.Message):
    __slots__ = ("protocol", "gateway", "tokenizer")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    gateway: str
    tokenizer: str
    def __init__(self, protocol: _Optional[int] = ..., gateway: _Optional[str] = ..., tokenizer: _Optional[str] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("request_id", "prompt_ids", "output_ids", "sampling", "cohort", "tenant", "max_draft_len", "trace", "cache_salt", "priority")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_IDS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    COHORT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MAX_DRAFT_LEN_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    prompt_ids: _containers.RepeatedScalarFieldContainer[int]
    output_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: _common_pb2.Sampling
    cohort: str
    tenant: str
    max_draft_len: int
    trace: _common_pb2.TraceContext
    cache_salt: str
    priority: int
    def __init__(self, request_id: _Optional[str] = ..., prompt_ids: _Optional[_Iterable[int]] = ..., output_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[_common_pb2.Sampling, _Mapping]] = ..., cohort: _Optional[str] = ..., tenant: _Optional[str] = ..., max_draft_len: _Optional[int] = ..., trace: _Optional[_Union[_common_pb2.TraceContext, _Mapping]] = ..., cache_salt: _Optional[str] = ..., priority: _Optional[int] = ...) -> None: ...

class GatewayFrame(_message.Message):
    __slots__ = ("hello", "submits", "aborts", "ping_ns")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    SUBMITS_FIELD_NUMBER: _ClassVar[int]
    ABORTS_FIELD_NUMBER: _ClassVar[int]
    PING_NS_FIELD_NUMBER: _ClassVar[int]
    hello: GatewayHello
    submits: _containers.RepeatedCompositeFieldContainer[Submit]
    aborts: _containers.RepeatedScalarFieldContainer[str]
    ping_ns: int
    def __init__(self, hello: _Optional[_Union[GatewayHello, _Mapping]] = ..., submits: _Optional[_Iterable[_Union[Submit, _Mapping]]] = ..., aborts: _Optional[_Iterable[str]] = ..., ping_ns: _Optional[int] = ...) -> None: ...

class TokenLogprob(_message.Message):
    __slots__ = ("token", "logprob")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    token: int
    logprob: float
    def __init__(self, token: _Optional[int] = ..., logprob: _Optional[float] = ...) -> None: ...

class PositionLogprobs(_message.Message):
    __slots__ = ("chosen", "top", "rank")
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    chosen: TokenLogprob
    top: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    rank: int
    def __init__(self, chosen: _Optional[_Union[TokenLogprob, _Mapping]] = ..., top: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ..., rank: _Optional[int] = ...) -> None: ...

class EngineError(_message.Message):
    __slots__ = ("kind", "message", "param")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    kind: ErrorKind
    message: str
    param: str
    def __init__(self, kind: _Optional[_Union[ErrorKind, str]] = ..., message: _Optional[str] = ..., param: _Optional[str] = ...) -> None: ...

class TokenChunk(_message.Message):
    __slots__ = ("request_id", "tokens", "logprobs", "drafted", "accepted", "mechanism", "reason", "finish", "stop_token", "error", "queue_us", "prefill_us", "remote", "cached_tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    PREFILL_US_FIELD_NUMBER: _ClassVar[int]
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tokens: _containers.RepeatedScalarFieldContainer[int]
    logprobs: _containers.RepeatedCompositeFieldContainer[PositionLogprobs]
    drafted: int
    accepted: int
    mechanism: str
    reason: str
    finish: FinishReason
    stop_token: int
    error: EngineError
    queue_us: int
    prefill_us: int
    remote: bool
    cached_tokens: int
    def __init__(self, request_id: _Optional[str] = ..., tokens: _Optional[_Iterable[int]] = ..., logprobs: _Optional[_Iterable[_Union[PositionLogprobs, _Mapping]]] = ..., drafted: _Optional[int] = ..., accepted: _Optional[int] = ..., mechanism: _Optional[str] = ..., reason: _Optional[str] = ..., finish: _Optional[_Union[FinishReason, str]] = ..., stop_token: _Optional[int] = ..., error: _Optional[_Union[EngineError, _Mapping]] = ..., queue_us: _Optional[int] = ..., prefill_us: _Optional[int] = ..., remote: bool = ..., cached_tokens: _Optional[int] = ...) -> None: ...

class TokenFrame(_message.Message):
    __slots__ = ("welcome", "chunks", "pong_ns")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    PONG_NS_FIELD_NUMBER: _ClassVar[int]
    welcome: VerifierInfo
    chunks: _containers.RepeatedCompositeFieldContainer[TokenChunk]
    pong_ns: int
    def __init__(self, welcome: _Optional[_Union[VerifierInfo, _Mapping]] = ..., chunks: _Optional[_Iterable[_Union[TokenChunk, _Mapping]]] = ..., pong_ns: _Optional[int] = ...) -> None: ...

class VerifierInfo(_message.Message):
    __slots__ = ("verifier", "pid", "model", "tokenizer", "vocab_size", "max_model_len", "dtype", "drafters")
    VERIFIER_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DRAFTERS_FIELD_NUMBER: _ClassVar[int]
    verifier: str
    pid: int
    model: str
    tokenizer: str
    vocab_size: int
    max_model_len: int
    dtype: str
    drafters: _containers.RepeatedCompositeFieldContainer[DrafterLink]
    def __init__(self, verifier: _Optional[str] = ..., pid: _Optional[int] = ..., model: _Optional[str] = ..., tokenizer: _Optional[str] = ..., vocab_size: _Optional[int] = ..., max_model_len: _Optional[int] = ..., dtype: _Optional[str] = ..., drafters: _Optional[_Iterable[_Union[DrafterLink, _Mapping]]] = ...) -> None: ...

class DrafterLink(_message.Message):
    __slots__ = ("drafter", "mechanism", "up", "pid", "frames_sent", "frames_received", "sessions", "rtt_us")
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    MECHANISM_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    FRAMES_SENT_FIELD_NUMBER: _ClassVar[int]
    FRAMES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    RTT_US_FIELD_NUMBER: _ClassVar[int]
    drafter: str
    mechanism: str
    up: bool
    pid: int
    frames_sent: int
    frames_received: int
    sessions: int
    rtt_us: int
    def __init__(self, drafter: _Optional[str] = ..., mechanism: _Optional[str] = ..., up: bool = ..., pid: _Optional[int] = ..., frames_sent: _Optional[int] = ..., frames_received: _Optional[int] = ..., sessions: _Optional[int] = ..., rtt_us: _Optional[int] = ...) -> None: ...
