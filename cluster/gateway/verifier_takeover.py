"""When a request is taken over, where, and when it is given up: decisions without a clock.

Time is an argument in seconds of one monotonic clock; randomness a number in [0, 1).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster.gateway.errors import GatewayError, NoVerifier, Overloaded

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_REASONS_KEPT = 3
_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class Loss:
    """One attempt that came to nothing.

    verifier: "" when none was offered. admitted: the verifier had not refused the request.
    limit: of an overload, the setting that was reached.
    """

    verifier: str
    reason: str
    overloaded: bool = False
    admitted: bool = False
    limit: str = ""


@dataclass(slots=True)
class Takeover:
    """The state of one request between attempts.

    Laws: a verifier that failed is not tried again before every other one was offered; each
    token received grants `patience_s` anew; an overload with nowhere else to go is said at once,
    unless a verifier had admitted the request.
    """

    patience_s: float
    deadline: float
    admitted: bool = False
    excluded: set[str] = field(default_factory=set)
    _overloaded: bool = False
    _limit: str = ""
    _rounds: int = 0
    _losses: list[str] = field(default_factory=list)

    def progressed(self, now: float) -> None:
        """Tokens came: what failed before says nothing about the next loss."""
        self.admitted = True
        self.deadline = now + self.patience_s
        if self._losses:
            self.excluded.clear()
            self._losses.clear()
            self._overloaded = False
            self._rounds = 0

    def lost(self, loss: Loss, now: float, uniform: float) -> float:
        """Seconds to wait before the next attempt; raises the final error when there is none."""
        self.admitted = self.admitted or loss.admitted
        self._overloaded = self._overloaded or loss.overloaded
        self._limit = loss.limit or self._limit
        self._losses = [*self._losses, loss.reason][-_REASONS_KEPT:]
        if loss.verifier and loss.verifier not in self.excluded:
            self.excluded.add(loss.verifier)
            if now >= self.deadline:
                raise self._verdict()
            return 0.0
        pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**self._rounds) * (0.5 + uniform / 2)
        if now + pause >= self.deadline or (self._overloaded and not self.admitted):
            raise self._verdict()
        self.excluded.clear()
        self._overloaded = False
        self._rounds += 1
        return pause

    def _verdict(self) -> GatewayError:
        why = "; ".join(dict.fromkeys(self._losses))
        if self._overloaded:
            return Overloaded(
                f"Every verifier is at its limit: {why}",
                retry_after_s=_RETRY_AFTER_S,
                limit=self._limit,
            )
        return NoVerifier(
            f"No verifier could go on with the request: {why}", retry_after_s=_RETRY_AFTER_S
        )
