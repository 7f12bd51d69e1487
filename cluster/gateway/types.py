"""What the gateway's parts say to each other.

HTTP and gRPC doors parse and validate into a `Generation request` (`GenerateSpec`); `generation`
turns the backend's token chunks into text `Delta`s, exact at stop strings; the backend reaches
verifiers and takes requests over when one is lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

from actors.sampling.params import SamplingParams

Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The served model as its verifiers describe it."""

    id: str
    vocab_size: int
    max_model_len: int
    dtype: str
    tokenizer_digest: str


@dataclass(frozen=True, slots=True)
class Trace:
    traceparent: str = ""
    tracestate: str = ""


@dataclass(frozen=True, slots=True)
class GenerateSpec:
    """A validated request: token ids in, seed drawn, everything resolved."""

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    stop: tuple[str, ...] = ()
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    cohort: str = ""
    tenant: str = ""
    max_draft_len: int | None = None  # the client's bound on D; 0 = standard decode
    trace: Trace = Trace()


@dataclass(frozen=True, slots=True)
class Score:
    """One token and its log-probability under the target (raw logits, before temperature)."""

    token: int
    logprob: float


@dataclass(frozen=True, slots=True)
class PositionScores:
    chosen: Score
    top: tuple[Score, ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """One engine step of one request, tokens only (the wire's TokenChunk)."""

    tokens: tuple[int, ...]
    logprobs: tuple[PositionScores, ...] = ()
    drafted: int = 0
    accepted: int = 0
    mechanism: str = ""
    reason: str = ""
    remote: bool = False
    finish: Finish | None = None
    stop_token: int | None = None
    queue_s: float = 0.0
    prefill_s: float = 0.0


@dataclass(slots=True)
class Stats:
    """Speculation counts of what was delivered, trimmed like the text (law L6)."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    remote_accepted: int = 0
    per_step_drafted: list[int] = field(default_factory=list)
    per_step_accepted: list[int] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delta:
    """Text and tokens of one engine step. `accepted` of token_ids, the first ones, were drafted.
    finish, usage and stats come with the last delta only."""

    text: str
    token_ids: tuple[int, ...] = ()
    token_texts: tuple[str, ...] = ()
    logprobs: tuple[PositionScores, ...] = ()
    accepted: int = 0
    remote: bool = False
    finish: Finish | None = None
    stop_reason: int | str | None = None  # the stop token id or string; None for EOS
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stats: Stats | None = None


class Backend(Protocol):
    """Verifiers behind one call. Closing the iterator early aborts the request everywhere."""

    async def info(self) -> ModelInfo: ...

    def generate(self, spec: GenerateSpec) -> AsyncIterator[Chunk]:
        """Chunks until `finish`. A verifier's death is survived: another one goes on from the
        committed tokens. Raises `cluster.gateway.errors.GatewayError` subclasses only."""
        ...
