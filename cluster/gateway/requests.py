"""The bodies of /v1/chat/completions and /v1/completions: names and types, strictly.

Bounds that both doors share are in `resolve`; here is only what HTTP's JSON can say. null is "not
given" everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from cluster.gateway import fields
from cluster.gateway.errors import InvalidRequest
from cluster.gateway.resolve import MAX_LOGPROBS, SamplingFields

MAX_ENTRIES = 4096  # of a list or mapping in a request; token ids may be more
_M = TypeVar("_M", bound="_Strict")
_R = TypeVar("_R", bound="_Request")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class StreamOptions(_Strict):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Speculative(_Strict):
    """llama.cpp's `speculative`; n_max 0 is standard decode for this request."""

    n_max: int | None = None


class Message(_Strict):
    """One turn, its content already joined to text. `developer` is OpenAI's newer word for
    `system`, which is what chat templates know."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str
    name: str | None = None

    def for_template(self) -> dict[str, str]:
        role = "system" if self.role == "developer" else self.role
        named = {"name": self.name} if self.name is not None else {}
        return {"role": role, "content": self.content, **named}


class _Request(_Strict):
    """What both endpoints honour."""

    REFUSED: ClassVar[Mapping[str, fields.Neutral]] = {}

    model: str | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int | None = None
    cache_salt: str | None = None
    user: str | None = None
    request_id: str | None = None
    metadata: dict[str, str] | None = None
    speculative: Speculative | None = None
    return_token_ids: bool | None = None
    return_spec_tokens_details: bool | None = None

    def options(self) -> StreamOptions:
        """Raises `InvalidRequest` when stream_options come without a stream."""
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest(
                "stream_options can only be given when stream is true.", param="stream_options"
            )
        return self.stream_options or StreamOptions()

    def _sampling(self, max_tokens: int | None, name: str, logprobs: int | None) -> SamplingFields:
        return SamplingFields(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=_token_keys(self.logit_bias or {}),
            seed=self.seed,
            max_tokens=max_tokens,
            min_tokens=self.min_tokens,
            stop_token_ids=self.stop_token_ids or (),
            ignore_eos=bool(self.ignore_eos),
            logprobs=logprobs,
            max_tokens_param=name,
        )


class ChatRequest(_Request):
    REFUSED = fields.CHAT

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None

    def sampling_fields(self) -> SamplingFields:
        name, limit = "max_completion_tokens", self.max_completion_tokens
        if limit is None:
            name, limit = "max_tokens", self.max_tokens
        return self._sampling(limit, name, self._logprobs())

    def _logprobs(self) -> int | None:
        top = self.top_logprobs
        if top is not None and not 0 <= top <= MAX_LOGPROBS:
            raise InvalidRequest(
                f"top_logprobs must be between 0 and {MAX_LOGPROBS}.", param="top_logprobs"
            )
        if top and not self.logprobs:
            raise InvalidRequest(
                "top_logprobs can only be given when logprobs is true.", param="top_logprobs"
            )
        return (top or 0) if self.logprobs else None


class CompletionRequest(_Request):
    REFUSED = fields.COMPLETIONS

    prompt: str | list[int] | list[str] | list[list[int]]
    logprobs: int | None = None

    def one_prompt(self) -> str | list[int]:
        """Text or token ids; a list of one prompt counts as that prompt."""
        prompt = self.prompt
        if isinstance(prompt, str) or not prompt:
            return prompt if isinstance(prompt, str) else []
        first = prompt[0]
        if isinstance(first, int):
            return [token for token in prompt if isinstance(token, int)]
        if len(prompt) > 1:
            raise InvalidRequest(
                f"prompt with more than one prompt ({len(prompt)}) is not supported yet.",
                param="prompt",
                code="unsupported_parameter",
            )
        return first

    def sampling_fields(self) -> SamplingFields:
        return self._sampling(self.max_tokens, "max_tokens", self.logprobs)


class TokenizeRequest(_Strict):
    """`messages` is checked as a chat request's is."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Any] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeRequest(_Strict):
    model: str | None = None
    tokens: list[int]


def parse_chat(document: Mapping[str, Any]) -> ChatRequest:
    """Raises `InvalidRequest` with the field's name in `param`."""
    document = dict(document)
    if isinstance(document.get("messages"), list):
        document["messages"] = [
            _message(message, f"messages[{i}]") for i, message in enumerate(document["messages"])
        ]
    request = _parse(ChatRequest, document)
    if not request.messages:
        raise InvalidRequest("messages must not be empty.", param="messages")
    return request


def parse_completion(document: Mapping[str, Any]) -> CompletionRequest:
    """Raises `InvalidRequest` with the field's name in `param`."""
    return _parse(CompletionRequest, document)


def parse_tokenize(document: Mapping[str, Any]) -> TokenizeRequest:
    kept = fields.honoured(document, TokenizeRequest.model_fields, {})
    request = parse_as(TokenizeRequest, kept)
    if (request.prompt is None) == (request.messages is None):
        raise InvalidRequest("Give either prompt or messages.", param="prompt")
    return request


def parse_detokenize(document: Mapping[str, Any]) -> DetokenizeRequest:
    return parse_as(
        DetokenizeRequest, fields.honoured(document, DetokenizeRequest.model_fields, {})
    )


def _refuse_crowds(document: Mapping[str, Any]) -> None:
    """Refuse by size what pydantic would complain about entry by entry, for seconds, with every
    other stream waiting."""
    for name, value in document.items():
        if not isinstance(value, list | dict) or len(value) <= MAX_ENTRIES:
            continue
        if name == "prompt" and all(type(item) is int for item in value):
            continue
        raise InvalidRequest(f"{name} has more than {MAX_ENTRIES} entries.", param=name)


def parse_as(model: type[_M], document: Mapping[str, Any]) -> _M:
    """`document` as `model`; pydantic's first complaint becomes an `InvalidRequest`."""
    _refuse_crowds(document)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        param = _param(first["loc"])
        missing = first["type"] == "missing"
        what = "is required" if missing else f"is not valid: {first['msg']}"
        raise InvalidRequest(
            f"{param or 'The request'} {what}.",
            param=param,
            code="missing_required_parameter" if missing else None,
        ) from error


def _parse(model: type[_R], document: Mapping[str, Any]) -> _R:
    kept = fields.honoured(document, model.model_fields, model.REFUSED)
    if isinstance(kept.get("speculative"), dict):
        kept["speculative"] = fields.honoured(
            kept["speculative"], Speculative.model_fields, fields.SPECULATIVE, "speculative."
        )
    return parse_as(model, kept)


def _message(message: object, where: str) -> object:
    """Fields checked by name, content parts of type text joined."""
    if not isinstance(message, dict):
        return message
    kept = fields.honoured(message, Message.model_fields, fields.MESSAGE, f"{where}.")
    if kept.get("role") in ("tool", "function"):
        raise InvalidRequest(
            f"{where}.role {kept['role']!r} is not supported yet.",
            param=f"{where}.role",
            code="unsupported_parameter",
        )
    if isinstance(kept.get("content"), list):
        parts = enumerate(kept["content"])
        kept["content"] = "".join(_part(part, f"{where}.content[{i}]") for i, part in parts)
    return kept


def _part(part: object, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str):
        raise InvalidRequest(f"{where} must be an object with a type.", param=where)
    if kind != "text":
        raise InvalidRequest(
            f"{where}.type {kind[:40]!r} is not supported yet, only 'text' is.",
            param=f"{where}.type",
            code="unsupported_parameter",
        )
    part = fields.honoured(part, ("type", "text"), {}, f"{where}.")
    if not isinstance(part.get("text"), str):
        raise InvalidRequest(f"{where}.text must be a string.", param=f"{where}.text")
    return str(part["text"])


def _token_keys(bias: Mapping[str, float]) -> dict[int, float]:
    """JSON's keys are strings; these are decimal token ids."""
    for key in bias:
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise InvalidRequest(
                f"logit_bias has the key {key[:40]!r}, which is no token id.", param="logit_bias"
            )
    by_token = {int(key): value for key, value in bias.items()}
    if len(by_token) < len(bias):  # "1" and "01"
        raise InvalidRequest("logit_bias names a token twice.", param="logit_bias")
    return by_token


def _param(loc: tuple[int | str, ...]) -> str | None:
    """`messages[0].content` from pydantic's location, without the tags of union members."""
    if not loc:
        return None
    path = str(loc[0])
    if loc[0] in ("messages", "stream_options", "speculative"):
        for step in loc[1:]:
            path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path
