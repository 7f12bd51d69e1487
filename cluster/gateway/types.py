"""What the gateway's parts say to each other.

HTTP and gRPC doors parse and validate into a `Generation request` (`GenerateSpec`); `generation`
turns the backend's token chunks into text `Delta`s, exact at stop strings; the backend reaches
verifiers and takes requests over when one is lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from actors.sampling.params import SamplingParams
from policies.cohorts import DEFAULT

Finish = Literal["stop", "length"]
PREFILL = "prefill"  # the `reason` of a prefill's token: it belongs to no round


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
    cohort: str = DEFAULT  # one that the configured rules name
    tenant: str = ""
    priority: int = 0  # lower is earlier
    cache_salt: str = ""  # prefixes are shared within one (tenant, cache_salt) alone
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


@dataclass(slots=True)  # not frozen: that costs five times as much to make, each step
class Chunk:
    """One engine step of one request, tokens only (the wire's TokenChunk). Never changed."""

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
    cached_tokens: int = 0  # a verifier's first chunk: prompt tokens its prefix cache had


@dataclass(slots=True)
class Stats:
    """Speculation counts of what was delivered, trimmed like the text (law L6).

    rounds: those that verified a draft; per_step_* have one entry for each of them.
    reasons: undrafted rounds by why nothing was drafted, prefill apart.
    mechanisms: drafted rounds by who drafted.
    queue_s, prefill_s: summed over the verifiers that took the request.
    cached_tokens: of the prompt, what the verifier that wrote the first token had computed before.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    remote_accepted: int = 0
    per_step_drafted: list[int] = field(default_factory=list)
    per_step_accepted: list[int] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)
    mechanisms: dict[str, int] = field(default_factory=dict)
    queue_s: float = 0.0
    prefill_s: float = 0.0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """One finished request on the gateway's clock, in seconds. mean_itl_s is per token, not per
    delta; None when there was one token or none."""

    ttft_s: float
    total_s: float
    mean_itl_s: float | None


@dataclass(slots=True)  # not frozen, as `Chunk` is not
class Delta:
    """Text and tokens of one engine step. `accepted` of token_ids, the first ones, were drafted.
    finish, usage, stats and timing come with the last delta only.

    text may lag behind the tokens: what may be the start of a stop string is held back.
    token_texts: what each token adds, "" while it is part of a character; only what a stop
    string cuts off in this very delta is missing from them.
    drafted, accepted, mechanism, reason: of the round that wrote the tokens.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    token_texts: tuple[str, ...] = ()
    logprobs: tuple[PositionScores, ...] = ()
    drafted: int = 0
    accepted: int = 0
    mechanism: str = ""
    reason: str = ""
    remote: bool = False
    cached_tokens: int = 0  # with the first tokens
    finish: Finish | None = None
    stop_reason: int | str | None = None  # the stop token id or string; None for EOS
    prompt_tokens: int = 0
    completion_tokens: int = 0
    stats: Stats | None = None
    timing: Timing | None = None


@dataclass(frozen=True, slots=True)
class DrafterState:
    """One drafter as a verifier sees it."""

    drafter: str
    mechanism: str
    up: bool


@dataclass(frozen=True, slots=True)
class BackendHealth:
    """verifiers: how many can take a request now."""

    verifiers: int
    drafters: tuple[DrafterState, ...] = ()


@runtime_checkable
class ReportsHealth(Protocol):
    """A backend that can say more for /health than whether `info` answers."""

    async def health(self) -> BackendHealth: ...


class Backend(Protocol):
    """Verifiers behind one call. Closing the iterator early aborts the request everywhere."""

    async def info(self) -> ModelInfo: ...

    def generate(self, spec: GenerateSpec) -> AsyncIterator[Chunk]:
        """Chunks until `finish`. A verifier's death is survived: another one goes on from the
        committed tokens. Raises `cluster.gateway.errors.GatewayError` subclasses only."""
        ...
