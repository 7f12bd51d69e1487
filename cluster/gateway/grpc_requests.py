"""From inference.proto's requests to a validated `GenerateSpec`; bounds are `resolve`'s."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.gateway.cohort import resolve_task
from cluster.gateway.errors import InvalidRequest
from cluster.gateway.prompts import chat_ids, text_ids
from cluster.gateway.resolve import (
    COMPLETION_MAX_TOKENS,
    SamplingFields,
    resolve_draft_len,
    resolve_prompt,
    resolve_request_id,
    resolve_sampling,
    resolve_stop,
)
from cluster.gateway.sharing import resolve_cache_salt, resolve_priority, resolve_tenant
from cluster.gateway.text import Message, TextCodec
from cluster.gateway.types import GenerateSpec, ModelInfo, Trace
from pilotfish.v1 import inference_pb2 as pb
from policies.cohorts import Cohorts, Traits

ROLES = ("system", "developer", "user", "assistant")


async def spec_of(
    request: pb.GenerateRequest,
    codec: TextCodec,
    info: ModelInfo,
    trace: Trace,
    *,
    model: str,
    tenant: str,
    cohorts: Cohorts,
) -> GenerateSpec:
    """Raises InvalidRequest by the field's name. model: by the name the client asked for. The
    request's own trace wins over `trace`.

    An absent max_tokens is what it is over HTTP: the rest of the context for a chat, else 16.
    """
    ids, param = await _input(request, codec, info)
    prompt_ids = resolve_prompt(ids, info, param)
    sampling = resolve_sampling(
        sampling_fields(request),
        info,
        len(prompt_ids),
        default_max_tokens=None if request.HasField("chat") else COMPLETION_MAX_TOKENS,
    )
    n_max = request.speculative.n_max if request.speculative.HasField("n_max") else None
    if request.trace.traceparent:
        trace = Trace(request.trace.traceparent, request.trace.tracestate)
    tenant, task = resolve_tenant(tenant), resolve_task(request.cohort, "cohort")
    traits = Traits(model, tenant, task, prompt_tokens=len(prompt_ids))
    return GenerateSpec(
        request_id=resolve_request_id(request.request_id),
        prompt_ids=prompt_ids,
        sampling=sampling,
        stop=resolve_stop(request.stop),
        cohort=cohorts.of(traits),
        tenant=tenant,
        priority=resolve_priority(request.priority),
        cache_salt=resolve_cache_salt(request.cache_salt or None),
        max_draft_len=resolve_draft_len(n_max),
        trace=trace,
    )


def sampling_fields(request: pb.GenerateRequest) -> SamplingFields:
    """Presence decides: an absent field is None, a zero is a zero."""

    def integer(name: str) -> int | None:
        return int(getattr(request, name)) if request.HasField(name) else None

    def number(name: str) -> float | None:
        return float(getattr(request, name)) if request.HasField(name) else None

    return SamplingFields(
        temperature=number("temperature"),
        top_p=number("top_p"),
        top_k=integer("top_k"),
        min_p=number("min_p"),
        repetition_penalty=number("repetition_penalty"),
        presence_penalty=number("presence_penalty"),
        frequency_penalty=number("frequency_penalty"),
        logit_bias=_logit_bias(request),
        seed=integer("seed"),
        max_tokens=integer("max_tokens"),
        min_tokens=integer("min_tokens"),
        stop_token_ids=tuple(request.stop_token_ids),
        ignore_eos=request.ignore_eos,
        logprobs=integer("logprobs"),
    )


def conversation(chat: pb.ChatPrompt) -> list[Message]:
    """The messages for the chat template; raises InvalidRequest."""
    if not chat.messages:
        raise InvalidRequest("messages must not be empty.", param="messages")
    for i, message in enumerate(chat.messages):
        if message.role not in ROLES:
            raise InvalidRequest(
                f"messages[{i}].role must be one of {', '.join(ROLES)}.",
                param=f"messages[{i}].role",
            )
    # `developer` is OpenAI's newer word for `system`, which is what chat templates know.
    return [
        {"role": "system" if m.role == "developer" else m.role, "content": m.content}
        for m in chat.messages
    ]


async def _input(
    request: pb.GenerateRequest, codec: TextCodec, info: ModelInfo
) -> tuple[Sequence[int], str]:
    """(token ids, the name to blame them by)."""
    match request.WhichOneof("input"):
        case "prompt":
            return await text_ids(request.prompt, codec, info), "prompt"
        case "chat":
            return await chat_ids(conversation(request.chat), codec, info), "messages"
        case "tokens":
            return request.tokens.ids, "tokens"
        case _:
            raise InvalidRequest(
                "One of prompt, chat and tokens is required.",
                param="prompt",
                code="missing_required_parameter",
            )


def _logit_bias(request: pb.GenerateRequest) -> dict[int, float]:
    bias = {entry.token: entry.bias for entry in request.logit_bias}
    if len(bias) < len(request.logit_bias):
        raise InvalidRequest("logit_bias names a token twice.", param="logit_bias")
    return bias
