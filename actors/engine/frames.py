"""Engine records and the wire's messages of `Verification`, both ways."""

from __future__ import annotations

from actors.engine.errors import DuplicateRequest, EngineError, InvalidRequest, Overloaded
from actors.engine.events import TokenEvent
from actors.engine.sequence import EngineRequest
from actors.exchange.codec import sampling_from_pb
from actors.sampling.decide import TokenScores
from pilotfish.v1 import exchange_pb2 as pb

_FINISH = {
    None: pb.FINISH_UNSPECIFIED,
    "stop": pb.FINISH_STOP,
    "length": pb.FINISH_LENGTH,
    "abort": pb.FINISH_ABORT,
    "error": pb.FINISH_ERROR,
}
_KINDS: tuple[tuple[type[EngineError], pb.ErrorKind], ...] = (
    (InvalidRequest, pb.ERROR_INVALID),
    (DuplicateRequest, pb.ERROR_DUPLICATE),
    (Overloaded, pb.ERROR_OVERLOADED),
)


def request_of(submit: pb.Submit, prefix: str = "") -> EngineRequest:
    """An engine request from the wire; raises InvalidRequest with the field's name."""
    if not submit.request_id:
        raise InvalidRequest("request_id is empty", param="request_id")
    try:
        sampling = sampling_from_pb(submit.sampling)
    except ValueError as error:
        raise InvalidRequest(str(error), param=getattr(error, "field", "sampling")) from error
    return EngineRequest(
        request_id=prefix + submit.request_id,
        prompt_ids=tuple(submit.prompt_ids),
        sampling=sampling,
        output_ids=tuple(submit.output_ids),
        cohort=submit.cohort,
        tenant=submit.tenant,
        priority=submit.priority,
        cache_salt=submit.cache_salt,
        max_draft_len=submit.max_draft_len if submit.HasField("max_draft_len") else None,
        traceparent=submit.trace.traceparent,
        tracestate=submit.trace.tracestate,
    )


def chunk_of(event: TokenEvent, cut: int = 0) -> pb.TokenChunk:
    """The wire's chunk of an event; `cut` characters of the request id's prefix go."""
    chunk = pb.TokenChunk(
        request_id=event.request_id[cut:],
        tokens=event.tokens,
        drafted=event.drafted,
        accepted=event.accepted,
        mechanism=event.mechanism,
        reason=event.reason,
        finish=_FINISH[event.finish],
        stop_token=-1 if event.stop_token is None else event.stop_token,
        remote=event.remote,
    )
    if event.logprobs:
        chunk.logprobs.extend(_scores(scores) for scores in event.logprobs)
    if event.first:
        chunk.queue_us = max(0, event.admitted_ns - event.arrived_ns) // 1000
        chunk.prefill_us = max(0, event.ended_ns - event.admitted_ns) // 1000
        chunk.cached_tokens = event.cached_tokens
    if event.error is not None:
        chunk.error.CopyFrom(error_of(event.error))
    return chunk


def error_of(error: EngineError) -> pb.EngineError:
    """The wire's error; whatever has no kind of its own is internal to its request."""
    kind = next((k for cls, k in _KINDS if isinstance(error, cls)), pb.ERROR_INTERNAL)
    return pb.EngineError(kind=kind, message=str(error), param=error.param)


def _scores(scores: TokenScores) -> pb.PositionLogprobs:
    return pb.PositionLogprobs(
        chosen=pb.TokenLogprob(token=scores.token, logprob=scores.logprob),
        top=[pb.TokenLogprob(token=t, logprob=p) for t, p in scores.top],
        rank=scores.rank,
    )
