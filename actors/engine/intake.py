"""What a request must be before it may wait: checked once, at the engine's door."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from actors.engine.backlog import Backlog
from actors.engine.errors import DuplicateRequest, InvalidRequest, Overloaded
from actors.engine.sequence import EngineRequest, Sequence


@dataclass(slots=True)
class QueueLimits:
    """Beyond these a request is refused at once, so that another verifier may take it.

    max_num_queued_reqs: requests waiting. max_num_queued_tokens: their tokens in all, None for no
    bound; a request that waits alone may have any length.
    """

    max_num_queued_reqs: int = 1024
    max_num_queued_tokens: int | None = None

    def check(self, request: EngineRequest, waiting: Backlog) -> Sequence | None:
        """Raises Overloaded, naming the limit. Where only the number is at its limit and another
        tenant has most of the queue, returns the request that has to give way instead."""
        crowd = None
        if len(waiting) >= self.max_num_queued_reqs:
            crowd = waiting.crowd(request.tenant)
            if crowd is None:
                raise Overloaded(
                    f"the queue is full: {len(waiting)} requests wait", "max_num_queued_reqs"
                )
        if self.max_num_queued_tokens is not None and len(waiting):
            tokens = waiting.tokens + len(request.prompt_ids) + len(request.output_ids)
            if tokens > self.max_num_queued_tokens:
                raise Overloaded(
                    f"the queue is full: {waiting.tokens} tokens wait", "max_num_queued_tokens"
                )
        return crowd


def validate(
    request: EngineRequest,
    known: Collection[str],
    vocab_size: int,
    max_model_len: int,
    eos_ids: frozenset[int] = frozenset(),
) -> None:
    """Raises InvalidRequest or DuplicateRequest with the field's name; `known`: ids in use."""
    ids = (*request.prompt_ids, *request.output_ids)
    if request.request_id in known:
        raise DuplicateRequest(f"request id {request.request_id!r} is in use", param="request_id")
    if not request.prompt_ids:
        raise InvalidRequest("the prompt is empty", param="prompt")
    if max(ids) >= vocab_size or min(ids) < 0:
        raise InvalidRequest("a token id is outside the vocabulary", param="prompt")
    if len(request.prompt_ids) >= max_model_len:
        raise InvalidRequest(
            f"the prompt has {len(request.prompt_ids)} tokens; with max_model_len "
            f"{max_model_len} at most {max_model_len - 1} leave room for an answer",
            param="prompt",
        )
    if request.sampling.max_tokens < 1:
        raise InvalidRequest("max_tokens must be at least 1", param="max_tokens")
    stops = eos_ids | request.sampling.stop_token_ids
    if request.sampling.min_tokens and sum(0 <= t < vocab_size for t in stops) == vocab_size:
        raise InvalidRequest(
            "until min_tokens no token may stop, and every one of the vocabulary does",
            param="min_tokens",
        )
