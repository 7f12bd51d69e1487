"""One request as its client saw it, and the latencies that follow from it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from pilotfish import Delta, PilotfishError


@dataclass(frozen=True, slots=True)
class Event:
    """One delta: when it came (s on the run's clock), how many tokens, how many of them drafted
    and accepted."""

    at_s: float
    tokens: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One answered or failed request; times in seconds. Counts are of delivered tokens (law L6).

    due_s: when it was to be sent. events: deltas with tokens, in order. output: a digest of the
    token ids, equal for equal answers.
    """

    prompt: str
    category: str
    due_s: float
    end_s: float
    events: tuple[Event, ...] = ()
    prompt_tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    remote_accepted: int = 0
    reasons: tuple[str, ...] = ()
    output: str = ""
    error: str = ""

    @property
    def tokens(self) -> int:
        return sum(event.tokens for event in self.events)

    @property
    def ttft_s(self) -> float:
        """From when it was due to its first token."""
        return self.events[0].at_s - self.due_s

    @property
    def decode_s(self) -> float:
        return self.events[-1].at_s - self.events[0].at_s

    @property
    def decode_tokens(self) -> int:
        """Tokens of the rounds after the first token."""
        return self.tokens - self.events[0].tokens

    @property
    def decode_rounds(self) -> int:
        """Forward passes that wrote them: each writes one token of its own beside the accepted."""
        return self.decode_tokens - sum(event.accepted for event in self.events[1:])

    @property
    def tpot_s(self) -> float | None:
        """Mean time per output token after the first; None with a single token."""
        return self.decode_s / self.decode_tokens if self.decode_tokens else None

    @property
    def gaps_s(self) -> list[float]:
        """Inter-token latency as a reader feels it: tokens of one commit come together, so k of
        them make one gap and k - 1 zeros."""
        gaps: list[float] = []
        for before, event in zip(self.events, self.events[1:], strict=False):
            gaps += [event.at_s - before.at_s, *([0.0] * (event.tokens - 1))]
        return gaps


@dataclass(slots=True)
class Recorder:
    """Collects one request's deltas into a sample."""

    prompt: str
    category: str
    due_s: float
    events: list[Event] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    last: Delta | None = None

    def take(self, delta: Delta, now_s: float) -> None:
        if delta.token_ids:
            self.events.append(Event(now_s, len(delta.token_ids), delta.accepted))
            self.ids += delta.token_ids
        self.last = delta

    def sample(self, now_s: float) -> Sample:
        last = self.last
        if last is None or last.finish_reason is None:
            return self.failed("the stream ended before the answer did", now_s)
        if not self.events:
            return self.failed("the answer has no token", now_s)
        speculation = last.speculation
        return Sample(
            prompt=self.prompt,
            category=self.category,
            due_s=self.due_s,
            end_s=now_s,
            events=tuple(self.events),
            prompt_tokens=last.usage.prompt_tokens if last.usage else 0,
            rounds=speculation.rounds if speculation else 0,
            drafted=speculation.drafted if speculation else 0,
            accepted=speculation.accepted if speculation else 0,
            remote_accepted=speculation.remote_accepted if speculation else 0,
            reasons=speculation.reasons if speculation else (),
            output=hashlib.sha256(repr(self.ids).encode()).hexdigest()[:16],
        )

    def failed(self, error: str, now_s: float) -> Sample:
        """A request without an answer: counted, and no latency is made up for it."""
        return Sample(self.prompt, self.category, self.due_s, now_s, error=error)


def served(samples: Sequence[Sample]) -> list[Sample]:
    """Those that were answered."""
    return [sample for sample in samples if not sample.error]


def error_line(error: PilotfishError) -> str:
    return f"{type(error).__name__}: {error}"[:200]
