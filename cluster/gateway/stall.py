"""A stream's client that takes nothing any more, noticed without a timer of its own for each write.

`asyncio.timeout` around every write costs more than what it guards, a hand-over to a buffer nearly
always; here one timer a stream looks whether the write that runs is an old one.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Stalled(Exception):
    """The client took nothing for as long as it may."""


class StallLimit:
    """An async context manager around a stream's loop: Stalled when a write that was begun has
    not ended within `limit_s`. One task uses it."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._timeout = asyncio.timeout(None)
        self._writing_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """A write begins; the one before has ended."""
        self._writing_since = self._loop.time()

    def end(self) -> None:
        self._writing_since = None

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._timer = self._loop.call_later(self._limit_s, self._look)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise Stalled from late

    def _look(self) -> None:
        now, since = self._loop.time(), self._writing_since
        left = self._limit_s if since is None else since + self._limit_s - now
        if left <= 0.0:
            self._timer = None
            self._timeout.reschedule(now)
        else:
            self._timer = self._loop.call_later(left, self._look)
