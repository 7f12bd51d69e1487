"""What the server answers, as plain records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pilotfish.v1 import inference_pb2 as pb


@dataclass(frozen=True, slots=True)
class Model:
    """A served model. max_model_len: prompt and output tokens together."""

    id: str
    max_model_len: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Usage:
    """cached_tokens: of the prompt, what the server had computed before."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class Speculation:
    """What speculation did for one request, counted from what was delivered.

    reasons: why rounds went undrafted, distinct. remote_accepted: of `accepted`, tokens of blocks
    that came over the wire.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    remote_accepted: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted of drafted tokens; None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def acceptance_length(self) -> float | None:
        """Tokens a drafted round wrote on average, the target's own one included."""
        return 1 + self.accepted / self.rounds if self.rounds else None


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A token and its log-probability under the target; `top` holds the likeliest tokens."""

    token: int
    text: str
    logprob: float
    top: tuple[TokenScore, ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """What one step of the engine added. The first `accepted` of token_ids were drafted.

    finish_reason ("stop" or "length"), usage and speculation come with the last delta only.
    """

    text: str
    token_ids: tuple[int, ...]
    accepted: int = 0
    logprobs: tuple[TokenScore, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    speculation: Speculation | None = None
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Generation:
    """A whole output. finish_reason: "stop" or "length"."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    usage: Usage
    speculation: Speculation
    logprobs: tuple[TokenScore, ...] = ()
    request_id: str = ""
    model: str = ""


def generation_of(message: pb.GenerateResponse) -> Generation:
    return Generation(
        text=message.text,
        token_ids=tuple(message.token_ids),
        finish_reason=message.finish_reason,
        usage=_usage(message.usage),
        speculation=_speculation(message.speculation),
        logprobs=_scores(message.logprobs),
        request_id=message.request_id,
        model=message.model,
    )


def delta_of(message: pb.GenerateDelta) -> Delta:
    return Delta(
        text=message.text,
        token_ids=tuple(message.token_ids),
        accepted=message.accepted,
        logprobs=_scores(message.logprobs),
        finish_reason=message.finish_reason or None,
        usage=_usage(message.usage) if message.HasField("usage") else None,
        speculation=(
            _speculation(message.speculation) if message.HasField("speculation") else None
        ),
        request_id=message.request_id,
    )


def joined(deltas: Iterable[Delta], model: str) -> Generation:
    """The output that a finished stream's deltas make up."""
    parts = list(deltas)
    last = parts[-1]
    return Generation(
        text="".join(part.text for part in parts),
        token_ids=tuple(token for part in parts for token in part.token_ids),
        finish_reason=last.finish_reason or "",
        usage=last.usage or Usage(0, 0),
        speculation=last.speculation or Speculation(),
        logprobs=tuple(score for part in parts for score in part.logprobs),
        request_id=last.request_id,
        model=model,
    )


def models_of(message: pb.ModelsResponse) -> list[Model]:
    return [Model(model.id, model.max_model_len, model.dtype) for model in message.models]


def _usage(message: pb.Usage) -> Usage:
    return Usage(message.prompt_tokens, message.completion_tokens, message.cached_tokens)


def _speculation(message: pb.SpeculationStats) -> Speculation:
    return Speculation(
        rounds=message.rounds,
        drafted=message.drafted,
        accepted=message.accepted,
        remote_accepted=message.remote_accepted,
        reasons=tuple(message.reasons),
    )


def _scores(messages: Iterable[pb.TokenScore]) -> tuple[TokenScore, ...]:
    return tuple(
        TokenScore(score.token, score.text, score.logprob, _scores(score.top)) for score in messages
    )
