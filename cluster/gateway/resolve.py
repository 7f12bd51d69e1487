"""From what a client may say to what a verifier is told: every bound, once, for both doors.

Absent (None) takes the default; a value out of bounds is refused by the field's name. Pure: the
seed's randomness is an argument.
"""

from __future__ import annotations

import math
import re
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from actors.sampling.params import (
    MAX_REPETITION_PENALTY,
    MAX_SEED,
    MIN_REPETITION_PENALTY,
    SamplingParams,
)
from cluster.gateway.errors import InvalidRequest, ModelNotFound
from cluster.gateway.types import ModelInfo

MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 256
MAX_STOP_TOKEN_IDS = 128
MAX_LOGIT_BIAS = 1024
MAX_LOGPROBS = 20
MAX_DRAFT_LEN = 32
GREEDY_BELOW = 1e-5  # logits / T would overflow; the argmax is the limit of the law (S20)
COMPLETION_MAX_TOKENS = 16  # OpenAI's default for /v1/completions
_T = TypeVar("_T")
_REQUEST_ID = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True, slots=True)
class SamplingFields:
    """Sampling as a client gave it; None is "not given". `max_tokens_param` is the name under
    which the client gave `max_tokens`."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    max_tokens_param: str = "max_tokens"


def new_seed() -> int:
    """A fresh seed for a request that brought none: uniform over 0 … 2^64-1."""
    return secrets.randbits(64)


def new_request_id() -> str:
    return secrets.token_hex(16)


def resolve_model(name: str | None, info: ModelInfo, served_name: str | None = None) -> str:
    """The name to answer with. Absent takes the served model; another is `ModelNotFound`."""
    if not name:
        return served_name or info.id
    if name not in (info.id, served_name):
        raise ModelNotFound(f"The model {name[:200]!r} does not exist.", param="model")
    return name


def resolve_request_id(given: str | None) -> str:
    """1 to 128 printable ASCII characters without spaces, or a new one."""
    if not given:
        return new_request_id()
    if not _REQUEST_ID.fullmatch(given):
        raise InvalidRequest(
            "request_id must be 1 to 128 printable ASCII characters without spaces.",
            param="request_id",
        )
    return given


def resolve_draft_len(n_max: int | None) -> int | None:
    """The client's bound on D: 0 is standard decode, None leaves it to the server."""
    if n_max is not None:
        _within("speculative.n_max", n_max, 0, MAX_DRAFT_LEN)
    return n_max


def resolve_prompt(ids: Sequence[int], info: ModelInfo, param: str = "prompt") -> tuple[int, ...]:
    """Non-empty, within the vocabulary, with room for one output token in the context."""
    if not ids:
        raise InvalidRequest(f"{param} must not be empty.", param=param)
    check_room(len(ids), info, param)
    if min(ids) < 0 or max(ids) >= info.vocab_size:
        raise InvalidRequest(
            f"{param} holds a token id outside 0 … {info.vocab_size - 1}.", param=param
        )
    return tuple(ids)


def check_room(tokens: int, info: ModelInfo, param: str, *, least: bool = False) -> None:
    """Raises `InvalidRequest` when a prompt of so many tokens (`least`: or more) leaves no room
    for one output token."""
    if tokens < info.max_model_len:
        return
    raise InvalidRequest(
        f"This model's maximum context length is {info.max_model_len} tokens (max_model_len), "
        f"but the prompt has {'at least ' if least else ''}{tokens} tokens and leaves no room for "
        "output. Shorten the prompt.",
        param=param,
        code="context_length_exceeded",
    )


def resolve_stop(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """Distinct non-empty stop strings, in the order given."""
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(strings) > MAX_STOP_STRINGS:
        raise InvalidRequest(
            f"stop takes at most {MAX_STOP_STRINGS} strings, not {len(strings)}.", param="stop"
        )
    for text in strings:
        if not 1 <= len(text) <= MAX_STOP_CHARS:
            raise InvalidRequest(
                f"Each stop string has 1 to {MAX_STOP_CHARS} characters, not {len(text)}.",
                param="stop",
            )
    return tuple(dict.fromkeys(strings))


def resolve_sampling(
    fields: SamplingFields,
    info: ModelInfo,
    prompt_tokens: int,
    *,
    default_max_tokens: int | None = None,
    seed: Callable[[], int] = new_seed,
) -> SamplingParams:
    """Defaults are OpenAI's: temperature 1, no cut. `default_max_tokens` None is the rest of the
    context. Raises `InvalidRequest` with the field's name in `param`."""
    max_tokens = _max_tokens(fields, info, prompt_tokens, default_max_tokens)
    temperature = _default(fields.temperature, 1.0)
    top_k = _default(fields.top_k, 0)
    _within("temperature", temperature, 0.0, math.inf)
    _within("top_k", top_k, -1, math.inf)
    top_p = _default(fields.top_p, 1.0)
    if not 0.0 < top_p <= 1.0:
        raise InvalidRequest(f"top_p must be in (0, 1], not {_short(top_p)}.", param="top_p")
    repetition = _within(
        "repetition_penalty",
        _default(fields.repetition_penalty, 1.0),
        MIN_REPETITION_PENALTY,
        MAX_REPETITION_PENALTY,
    )
    if fields.logprobs is not None:
        _within("logprobs", fields.logprobs, 0, MAX_LOGPROBS)
    if fields.seed is not None:
        _within("seed", fields.seed, 0, MAX_SEED)
    stop_token_ids = _stop_token_ids(fields.stop_token_ids, info)
    min_tokens = int(_within("min_tokens", _default(fields.min_tokens, 0), 0, max_tokens))
    if min_tokens and len(stop_token_ids) == info.vocab_size:
        raise InvalidRequest(
            "min_tokens cannot be reached: stop_token_ids holds the whole vocabulary.",
            param="min_tokens",
        )
    return SamplingParams(
        temperature=0.0 if temperature < GREEDY_BELOW else float(temperature),
        top_k=0 if top_k == -1 or top_k >= info.vocab_size else top_k,
        top_p=float(top_p),
        min_p=float(_within("min_p", _default(fields.min_p, 0.0), 0.0, 1.0)),
        repetition_penalty=float(repetition),
        presence_penalty=_penalty("presence_penalty", fields.presence_penalty),
        frequency_penalty=_penalty("frequency_penalty", fields.frequency_penalty),
        logit_bias=_logit_bias(fields.logit_bias, info),
        seed=seed() if fields.seed is None else fields.seed,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        stop_token_ids=stop_token_ids,
        ignore_eos=fields.ignore_eos,
        logprobs=fields.logprobs,
    )


def _default(value: _T | None, default: _T) -> _T:
    return default if value is None else value


def _finite(value: float) -> bool:
    return abs(value) <= sys.float_info.max


def _short(value: float) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _within(name: str, value: float, low: float, high: float) -> float:
    """`value` when it is a finite number in [low, high]; integers of any size are compared."""
    if not (_finite(value) and low <= value <= high):
        bound = f"at least {low}" if math.isinf(high) else f"between {low} and {high}"
        raise InvalidRequest(f"{name} must be {bound}, not {_short(value)}.", param=name)
    return value


def _penalty(name: str, value: float | None) -> float:
    return float(_within(name, _default(value, 0.0), -2.0, 2.0))


def _max_tokens(
    fields: SamplingFields, info: ModelInfo, prompt_tokens: int, default: int | None
) -> int:
    """A default is clipped to the context; a client's own number that cannot fit is refused."""
    room = info.max_model_len - prompt_tokens
    if fields.max_tokens is None:
        return room if default is None else min(default, room)
    name = fields.max_tokens_param
    if fields.max_tokens < 1:
        raise InvalidRequest(
            f"{name} must be at least 1, not {_short(fields.max_tokens)}.", param=name
        )
    if fields.max_tokens > room:
        raise InvalidRequest(
            f"This model's maximum context length is {info.max_model_len} tokens (max_model_len), "
            f"but {_short(fields.max_tokens)} output tokens were asked for after a prompt of "
            f"{prompt_tokens} tokens. Ask for at most {room}.",
            param=name,
            code="context_length_exceeded",
        )
    return fields.max_tokens


def _logit_bias(bias: Mapping[int, float], info: ModelInfo) -> tuple[tuple[int, float], ...]:
    if len(bias) > MAX_LOGIT_BIAS:
        raise InvalidRequest(
            f"logit_bias takes at most {MAX_LOGIT_BIAS} entries, not {len(bias)}.",
            param="logit_bias",
        )
    for token, value in bias.items():
        _in_vocab("logit_bias", token, info)
        _within("logit_bias", value, -100.0, 100.0)
    return tuple(sorted((token, float(value)) for token, value in bias.items()))


def _stop_token_ids(ids: Sequence[int], info: ModelInfo) -> frozenset[int]:
    if len(ids) > MAX_STOP_TOKEN_IDS:
        raise InvalidRequest(
            f"stop_token_ids takes at most {MAX_STOP_TOKEN_IDS} ids, not {len(ids)}.",
            param="stop_token_ids",
        )
    for token in ids:
        _in_vocab("stop_token_ids", token, info)
    return frozenset(ids)


def _in_vocab(name: str, token: int, info: ModelInfo) -> None:
    if not 0 <= token < info.vocab_size:
        raise InvalidRequest(
            f"{name} holds token id {_short(token)}, outside 0 … {info.vocab_size - 1}.", param=name
        )
