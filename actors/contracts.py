"""Records and contracts between the engine, the exchange and the drafters (DESIGN §6).

Vocabulary: *anchor* is the newest committed token, whose target KV does not exist yet; a *block*
is drafted tokens after the anchor; a *commit* is what the target accepted plus one token of its
own; `base_len` is the committed length a block was drafted on; *features* are tapped target
hidden states of committed rows, bf16, shape [rows, len(taps) * hidden].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from actors.sampling.law import TokenLaw
from actors.sampling.params import SamplingParams

if TYPE_CHECKING:
    import torch

    from actors.exchange.status import LinkRecord
    from policies.choice import Arm


MADE_UP = "made-up"
"""The verifier of sessions that are there to be timed: nothing is learnt from their texts."""


@dataclass(frozen=True, slots=True)
class SessionKey:
    """One request's state on one drafter. `epoch` grows each time it is opened again."""

    verifier: str
    request: str
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    """What a drafter can do; the engine asks for capabilities and never names a mechanism.

    vocab_size, max_context, max_block: 0 means any. taps: indices into transformers'
    `hidden_states`, pre-norm (0 is the embedding output).
    gives_law: each sampled block comes with the law that its tokens were drawn from, drawn
    independently of the target's noise, and with as many tokens as were asked for where it can:
    what rules that weigh laws need (DESIGN §5).
    projection: digest of the map that features come through (the verifier has made it); empty:
    they come as they were tapped.
    max_ahead: how long its chains may get when it drafts past a block on its own guess of the
    commit (run-ahead); 0 is not at all.
    weight_bytes: what its weights take on its device. token_bytes: what it keeps there for each
    committed token of a session, at most; whoever shares the device leaves room for it.
    timings: (sessions, depth, seconds) of rounds that it timed at its start; empty: none are known.
    """

    mechanism: str
    revision: str
    vocab_size: int = 0
    needs_features: bool = False
    taps: tuple[int, ...] = ()
    max_block: int = 16
    gives_law: bool = False
    max_context: int = 0
    weight_bytes: int = 0
    token_bytes: int = 0
    max_ahead: int = 0
    projection: str = ""
    timings: tuple[tuple[int, int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class OpenSession:
    """`tokens` is the whole committed prefix; `features`, when the drafter needs them, are rows
    0 … len(tokens)-2 (the newest token has no target row yet).

    prompt_len: how many of the tokens are the prompt's, so that penalties and min_tokens count
    the output alike on both sides, also where a session is opened in the middle; 0 is all of them.
    """

    key: SessionKey
    tokens: tuple[int, ...]
    sampling: SamplingParams
    tenant: str = ""
    features: torch.Tensor | None = None
    prompt_len: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """Tokens at positions from_len … from_len+m, m of them accepted drafts.

    features: rows from_len-1 … from_len+m-1, shape [m+1, F], or None.
    depth: how many tokens are wanted next; 0 keeps the session warm.
    """

    key: SessionKey
    round: int
    from_len: int
    tokens: tuple[int, ...]
    features: torch.Tensor | None = None
    depth: int = 0


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """Ask for at most `depth` tokens after the session's newest committed one."""

    key: SessionKey
    depth: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """tokens[i] is proposed for position base_len + i. May be shorter than asked, or empty; cold
    says that it is empty because the prompt is still being read.

    law: what each token was really drawn from, one a token; None for tokens that what precedes
    them fixes. With a law the length must not depend on the tokens (S16)."""

    key: SessionKey
    base_len: int
    tokens: tuple[int, ...]
    confidence: tuple[float, ...] | None = None
    cold: bool = False
    law: tuple[TokenLaw, ...] | None = None


class Drafter(Protocol):
    """One mechanism. Called from one thread only; batched over sessions.

    A method may raise `DrafterError` for the sessions it names; any other exception counts
    against every session of the call. Nothing a drafter does can change the text (law L2); where
    laws are weighed it has a say in which text, and the law it gives is taken at its word.
    """

    @property
    def info(self) -> DrafterInfo: ...

    def open(self, sessions: Sequence[OpenSession]) -> None: ...

    def observe(self, commits: Sequence[Commit]) -> None: ...

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]: ...

    def close(self, key: SessionKey) -> None:
        """Idempotent. Afterwards the drafter holds nothing of the session (law L3)."""
        ...


class DrafterError(Exception):
    """A drafter failed on some sessions only."""

    def __init__(self, message: str, keys: Sequence[SessionKey] = ()) -> None:
        super().__init__(message)
        self.keys = tuple(keys)


# ------------------------------------------------------------------- engine <-> draft port


class SessionView(Protocol):
    """What a port may read of a running request, on the engine's thread only."""

    @property
    def request_id(self) -> str: ...

    @property
    def tokens(self) -> Sequence[int]:
        """Prompt and output: every committed token."""
        ...

    @property
    def prompt_len(self) -> int: ...

    @property
    def sampling(self) -> SamplingParams: ...

    @property
    def tenant(self) -> str: ...

    @property
    def trace(self) -> tuple[str, str]:
        """traceparent, tracestate; empty when not traced."""
        ...

    def features(self, from_row: int, to_row: int) -> torch.Tensor | None:
        """Rows from_row … to_row-1, or None when the engine taps nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Draft:
    """A block ready for verification: it starts at the request's committed length. behind: tokens
    of the block before these that had already been committed when it came. confidence, law: see
    `Proposal`; confidence is empty where the drafter gives none."""

    tokens: tuple[int, ...]
    mechanism: str
    remote: bool
    draft_us: int = 0
    behind: int = 0
    law: tuple[TokenLaw, ...] | None = None
    confidence: tuple[float, ...] = ()

    def cut(self, length: int) -> Draft:
        """Its first `length` tokens."""
        if len(self.tokens) <= length:
            return self
        law = None if self.law is None else self.law[:length]
        sure = self.confidence[:length]
        return replace(self, tokens=self.tokens[:length], law=law, confidence=sure)


@dataclass(frozen=True, slots=True)
class Gathered:
    """drafts by request id; for each wanted row without one, the reason it runs at D = 0.

    overtaken: of blocks that came too late to be offered, (tokens, how many of the first were what
    the target wrote meanwhile): without them drafters would be judged by their lucky blocks alone.
    shadows: blocks that were asked for as evidence and have come since the last call, each by its
    arm; they start at the request's committed length, as drafts do, and are never waited for.
    judged: those of them that nothing is left of to see, (arm, tokens that came, how many of the
    first were what the target wrote): what was overtaken, and where nothing was proposed.
    """

    drafts: dict[str, Draft] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    waited_s: float = 0.0
    overtaken: dict[str, tuple[int, int]] = field(default_factory=dict)
    shadows: dict[str, tuple[Arm, Draft]] = field(default_factory=dict)
    judged: dict[str, tuple[Arm, int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PortCommit:
    """One request's newest commit. `depth` 0 keeps the drafter warm and asks for no block.

    arm: of which way to draft the block is asked; None is the port's first. shadow: one of which
    no block is asked now, and how many tokens are asked of it for evidence alone."""

    request_id: str
    round: int
    from_len: int
    tokens: tuple[int, ...]
    depth: int
    arm: Arm | None = None
    shadow: tuple[Arm, int] | None = None

    @property
    def rows(self) -> tuple[int, int]:
        """Of the features that go with it, first and one past the last; a drafter that reads any
        has them from the session's view, so that nothing is copied for those that read none."""
        return self.from_len - 1, self.from_len + len(self.tokens) - 1

    @property
    def evidence(self) -> int:
        """Tokens that a port with one arm is asked for as evidence alone."""
        return self.shadow[1] if self.shadow is not None and not self.depth else 0


class DraftPort(Protocol):
    """How the engine reaches drafters, co-located or remote; engine thread only, never raises.

    The engine calls `open` when a request is admitted, `commit` after a round for which it wants
    a block (with all that was committed since the last), `gather` before a forward, and `close`
    at the end. In batches too large to gain it closes sessions earlier, and opens them again. A
    session whose drafter is lost is opened again elsewhere by the port.
    """

    @property
    def taps(self) -> tuple[int, ...]:
        """Hidden states the engine must capture; fixed for the engine's life."""
        ...

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The ways to draft that are up now, the default first: a drafter lives, and its breaker
        lets it be asked. Cheap; not of those that are known and down."""
        ...

    def open(self, view: SessionView) -> None: ...

    def prefilled(self, request_id: str, rows: int) -> None:
        """A part of its prompt has run: features of its first `rows` rows can be had, and need not
        wait for the prompt's end to travel."""
        ...

    def commit(self, commits: Sequence[PortCommit]) -> None: ...

    def gather(self, wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
        """Collect blocks for `wanted` (request id -> tokens that may be used; no more are drafted
        than the newest commit asked for). `worth_s`: the seconds that a step may wait for each
        (the waiting rule's budget, DESIGN §7); those that are not named are taken when they have
        come, and worth no wait."""
        ...

    def close(self, request_id: str, reason: str) -> None: ...

    def status(self) -> list[LinkRecord]:
        """What the port sees of its drafters; callable from any thread."""
        ...

    def shutdown(self) -> None: ...
