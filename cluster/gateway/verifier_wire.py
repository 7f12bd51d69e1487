"""Gateway records and the wire's messages of `Verification`, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from actors.exchange.codec import sampling_to_pb
from cluster.gateway.errors import (
    DuplicateRequest,
    GatewayError,
    InvalidRequest,
    Overloaded,
    RequestFailed,
)
from cluster.gateway.types import (
    Chunk,
    DrafterState,
    Finish,
    GenerateSpec,
    ModelInfo,
    PositionScores,
    Score,
)
from pilotfish.v1 import common_pb2
from pilotfish.v1 import exchange_pb2 as pb

_FINISH: dict[int, Finish] = {pb.FINISH_STOP: "stop", pb.FINISH_LENGTH: "length"}


def submit_of(spec: GenerateSpec, wire_id: str, output_ids: Sequence[int]) -> pb.Submit:
    """What any verifier needs to go on from `output_ids` as if it had written them itself."""
    submit = pb.Submit(
        request_id=wire_id,
        prompt_ids=spec.prompt_ids,
        output_ids=output_ids,
        sampling=sampling_to_pb(spec.sampling),
        cohort=spec.cohort,
        tenant=spec.tenant,
        priority=spec.priority,
        cache_salt=spec.cache_salt,
        trace=common_pb2.TraceContext(
            traceparent=spec.trace.traceparent, tracestate=spec.trace.tracestate
        ),
    )
    if spec.max_draft_len is not None:
        submit.max_draft_len = spec.max_draft_len
    return submit


def chunk_of(chunk: pb.TokenChunk) -> Chunk:
    """A step's tokens; `finish` other than stop and length is the caller's business."""
    return Chunk(
        tokens=tuple(chunk.tokens[:]),  # a slice is read at once, an iterator one by one
        logprobs=tuple(map(_scores, chunk.logprobs)) if chunk.logprobs else (),
        drafted=chunk.drafted,
        accepted=chunk.accepted,
        mechanism=chunk.mechanism,
        reason=chunk.reason,
        remote=chunk.remote,
        finish=_FINISH.get(chunk.finish),
        stop_token=chunk.stop_token if _stopped_by_token(chunk) else None,
        queue_s=chunk.queue_us / 1e6,
        prefill_s=chunk.prefill_us / 1e6,
        cached_tokens=chunk.cached_tokens,
    )


def error_of(error: pb.EngineError) -> GatewayError:
    """The typed error of a verifier's refusal."""
    message = error.message or "the verifier gave no reason"
    param = error.param or None
    if error.kind == pb.ERROR_INVALID:
        return InvalidRequest(message, param=param)
    if error.kind == pb.ERROR_OVERLOADED:
        return Overloaded(message, limit=error.param)
    if error.kind == pb.ERROR_DUPLICATE:
        return DuplicateRequest(message, param="request_id")
    return RequestFailed(message)


def model_info_of(info: pb.VerifierInfo) -> ModelInfo:
    return ModelInfo(
        id=info.model,
        vocab_size=info.vocab_size,
        max_model_len=info.max_model_len,
        dtype=info.dtype,
        tokenizer_digest=info.tokenizer,
    )


def drafters_of(infos: Iterable[pb.VerifierInfo]) -> tuple[DrafterState, ...]:
    """Each drafter once; up when any verifier reaches it."""
    states: dict[str, DrafterState] = {}
    for link in (link for info in infos for link in info.drafters):
        known = states.get(link.drafter)
        up = link.up or (known is not None and known.up)
        states[link.drafter] = DrafterState(link.drafter, link.mechanism, up)
    return tuple(states[name] for name in sorted(states))


def _stopped_by_token(chunk: pb.TokenChunk) -> bool:
    return chunk.finish == pb.FINISH_STOP and chunk.stop_token >= 0


def _scores(scores: pb.PositionLogprobs) -> PositionScores:
    return PositionScores(
        chosen=Score(scores.chosen.token, scores.chosen.logprob),
        top=tuple(Score(score.token, score.logprob) for score in scores.top),
    )
