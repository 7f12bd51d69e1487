"""When to stop asking a drafter, and when to ask again. The clock is an argument.

A *miss* is silence: an ask older than `patience_s` with nothing heard since. Counting starts anew
after each miss, so short steps do not turn one pause into three misses; asks that end with their
requests add up, so short requests do not hide a drafter that never answers. Three misses of all its
rows isolate a drafter for 5 s, doubled with each relapse; then one session probes it (half-open).
Four misses of one session, while others are answered, open that session again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

DRAFTER_MISSES = 3
SESSION_MISSES = 4
ISOLATE_S = 5.0
MAX_ISOLATE_S = 80.0

Admission = Literal["all", "one", "none"]


@dataclass(frozen=True, slots=True)
class Silence:
    """Consecutive misses, and since when an ask has been unanswered (None: nothing asked).
    waited_s: how long earlier asks since the last miss had gone unanswered when they ended."""

    misses: int = 0
    since_s: float | None = None
    waited_s: float = 0.0


def asked(silence: Silence, now_s: float) -> Silence:
    """Only the oldest unanswered ask counts, so asking more often does not buy time."""
    if silence.since_s is not None:
        return silence
    return Silence(silence.misses, now_s - silence.waited_s)


def withdrawn(silence: Silence, now_s: float) -> Silence:
    """The asks have ended with their requests; the time they waited in vain counts on."""
    if silence.since_s is None:
        return silence
    return Silence(silence.misses, None, now_s - silence.since_s)


def unanswered(silence: Silence, now_s: float, patience_s: float) -> Silence:
    """A step went without: a miss if the oldest ask is older than `patience_s`."""
    if silence.since_s is None or now_s - silence.since_s < patience_s:
        return silence
    return Silence(silence.misses + 1, now_s)


@dataclass(frozen=True, slots=True)
class Breaker:
    """One drafter's. isolations: how often in a row; until_s: end of the present isolation."""

    silence: Silence = Silence()
    isolations: int = 0
    until_s: float | None = None

    @property
    def closed(self) -> bool:
        """True while the drafter is trusted with every session."""
        return self.until_s is None


def admission(breaker: Breaker, now_s: float) -> Admission:
    """Who may be opened: "one" is half-open, a single session as the probe."""
    if breaker.until_s is None:
        return "all"
    return "one" if now_s >= breaker.until_s else "none"


def ask(breaker: Breaker, now_s: float) -> Breaker:
    if breaker.silence.since_s is not None:
        return breaker
    return replace(breaker, silence=asked(breaker.silence, now_s))


def answer(breaker: Breaker, now_s: float) -> Breaker:
    """Something was heard. It ends every count, but not an isolation before its time."""
    if admission(breaker, now_s) == "none":
        return replace(breaker, silence=Silence())
    return Breaker()


def interrupted(breaker: Breaker) -> Breaker:
    """The asks are gone with their connection, and say nothing."""
    return replace(breaker, silence=Silence(breaker.silence.misses))


def left(breaker: Breaker, now_s: float) -> Breaker:
    """The last session has left; nobody waits for an answer until there is another."""
    return replace(breaker, silence=withdrawn(breaker.silence, now_s))


def miss(breaker: Breaker, now_s: float, patience_s: float) -> Breaker:
    """A step in which none of the drafter's rows had a block."""
    silence = unanswered(breaker.silence, now_s, patience_s)
    return _judge(replace(breaker, silence=silence), silence.misses > breaker.silence.misses, now_s)


def fail(breaker: Breaker, now_s: float) -> Breaker:
    """An answer of nothing but failures is a miss at once."""
    silence = Silence(breaker.silence.misses + 1, None)
    return _judge(replace(breaker, silence=silence), True, now_s)


def _judge(breaker: Breaker, counted: bool, now_s: float) -> Breaker:
    state = admission(breaker, now_s)
    if not counted or state == "none":
        return breaker
    if state == "all" and breaker.silence.misses < DRAFTER_MISSES:
        return breaker
    pause_s = min(ISOLATE_S * 2.0**breaker.isolations, MAX_ISOLATE_S)
    return Breaker(Silence(), breaker.isolations + 1, now_s + pause_s)


def session_lost(silence: Silence) -> bool:
    """True when one session has been silent often enough to be opened again."""
    return silence.misses >= SESSION_MISSES
