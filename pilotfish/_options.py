"""What a caller may ask for, and the request it becomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

from pilotfish._errors import InvalidRequestError
from pilotfish.v1 import common_pb2
from pilotfish.v1 import inference_pb2 as pb

Message: TypeAlias = Mapping[str, str]
"""A chat message: {"role": ..., "content": ...}."""


class GenerateOptions(TypedDict, total=False):
    """Keyword arguments of `generate` and `stream`. An absent one takes the server's default.

    model: a served name; the only model when absent.
    max_tokens, min_tokens: output tokens. temperature: 0 is greedy. top_k: 0 is off.
    top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty: as usual.
    logit_bias: token id -> added to its logit. seed: 0 … 2^64-1; the same seed gives the same
    text. stop: the text ends before the first of these. stop_token_ids, ignore_eos: likewise for
    token ids. logprobs: how many of the likeliest tokens to score beside each chosen one.
    speculative_n_max: most tokens to draft a round; 0 is standard decode, same text.
    priority: lower is earlier. cache_salt: prefixes are shared with requests of this salt alone.
    cohort: the task that the server's cohort rules look at. request_id: yours, else the server's.
    traceparent, tracestate: W3C trace context; the current OpenTelemetry span when absent.
    timeout: seconds for this call, None for no limit; the client's when absent.
    """

    model: str
    max_tokens: int
    min_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    seed: int
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    logprobs: int
    speculative_n_max: int
    priority: int
    cache_salt: str
    cohort: str
    request_id: str
    traceparent: str
    tracestate: str
    timeout: float | None


# Every other option is a field of GenerateRequest by the same name and takes the value as it is.
_MAPPED = frozenset({"logit_bias", "speculative_n_max", "stop", "stop_token_ids"})
_ELSEWHERE = frozenset({"timeout", "traceparent", "tracestate"})
_PLAIN = frozenset(GenerateOptions.__annotations__) - _MAPPED - _ELSEWHERE


def generate_request(
    prompt: str | None,
    messages: Sequence[Message] | None,
    tokens: Sequence[int] | None,
    options: Mapping[str, Any],
) -> pb.GenerateRequest:
    """The wire's request. Raises TypeError for an unknown option or not exactly one input, and
    InvalidRequestError for a value the wire cannot carry."""
    if sum(given is not None for given in (prompt, messages, tokens)) != 1:
        raise TypeError("give exactly one of prompt, messages and tokens")
    request = pb.GenerateRequest()
    if prompt is not None:
        _set(request, "prompt", prompt, "prompt")
    elif messages is not None:
        request.chat.CopyFrom(chat_prompt(messages))
    elif tokens is not None:
        request.tokens.SetInParent()
        _extend(request.tokens.ids, tokens, "tokens")
    for name, value in options.items():
        if name not in _ELSEWHERE and value is not None:
            _option(request, name, value)
    return request


def tokenize_request(
    text: str | None, messages: Sequence[Message] | None, model: str
) -> pb.TokenizeRequest:
    if (text is None) == (messages is None):
        raise TypeError("give exactly one of text and messages")
    request = pb.TokenizeRequest()
    _set(request, "model", model, "model")
    if text is not None:
        _set(request, "text", text, "text")
    elif messages is not None:
        request.chat.CopyFrom(chat_prompt(messages))
    return request


def chat_prompt(messages: Sequence[Message]) -> pb.ChatPrompt:
    chat = pb.ChatPrompt()
    if not isinstance(messages, Iterable):
        raise _refused("messages", "a sequence of messages is wanted")
    for message in messages:
        if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
            raise _refused("messages", "a message has the keys 'role' and 'content'")
        entry = chat.messages.add()
        _set(entry, "role", message["role"], "messages")
        _set(entry, "content", message["content"], "messages")
    return chat


def _option(request: pb.GenerateRequest, name: str, value: Any) -> None:
    if name in _PLAIN:
        _set(request, name, value, name)
    elif name == "stop":
        _extend(request.stop, [value] if isinstance(value, str) else value, name)
    elif name == "stop_token_ids":
        _extend(request.stop_token_ids, value, name)
    elif name == "speculative_n_max":
        _set(request.speculative, "n_max", value, name)
    elif name == "logit_bias":
        if not isinstance(value, Mapping):
            raise _refused(name, "a mapping of token ids to numbers is wanted")
        for token, bias in value.items():
            entry = common_pb2.TokenBias()
            _set(entry, "token", token, name)
            _set(entry, "bias", bias, name)
            request.logit_bias.append(entry)
    else:
        known = ", ".join(sorted(GenerateOptions.__annotations__))
        raise TypeError(f"unknown option {name!r}; known: {known}")


def _set(message: Any, field: str, value: Any, param: str) -> None:
    try:
        setattr(message, field, value)
    except (TypeError, ValueError) as error:
        raise _refused(param, error) from None


def _extend(field: Any, values: Sequence[Any], param: str) -> None:
    try:
        field.extend(values)
    except (TypeError, ValueError) as error:
        raise _refused(param, error) from None


def _refused(param: str, error: Exception | str) -> InvalidRequestError:
    """Out of range, of a wrong type, or text that is no Unicode (lone surrogates)."""
    return InvalidRequestError(f"{param}: {error}", code="INVALID_ARGUMENT", param=param)
