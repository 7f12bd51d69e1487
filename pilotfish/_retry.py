"""When a call is tried again: before anything was received, a few times, in time."""

from __future__ import annotations

from dataclasses import dataclass

from pilotfish._errors import OverloadedError, PilotfishError, UnavailableError


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time-out in seconds from `start` on one monotonic clock; None never passes."""

    timeout: float | None
    start: float

    def left(self, now: float) -> float | None:
        return None if self.timeout is None else max(0.0, self.start + self.timeout - now)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most `retries` attempts after the first, with exponential back-off in seconds."""

    retries: int = 2
    first_pause: float = 0.1
    longest_pause: float = 2.0

    def pause(
        self, attempt: int, error: PilotfishError, left: float | None, uniform: float
    ) -> float | None:
        """Seconds before attempt + 1 (attempts count from 0), or None to give up.

        Only a server that is away or full is asked again; a negative retry_after says no. The
        server's own retry_after wins over the back-off. uniform: jitter in [0, 1).
        """
        if attempt >= self.retries or not isinstance(error, (UnavailableError, OverloadedError)):
            return None
        if error.retry_after is not None and error.retry_after < 0:
            return None
        backoff = min(self.longest_pause, self.first_pause * 2.0**attempt)
        pause = error.retry_after if error.retry_after is not None else backoff
        pause *= 1 + uniform / 4
        return pause if left is None or pause < left else None
