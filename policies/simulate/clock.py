"""Simulated time: what is to happen, in order, and at equal times in the order it was said."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0
        self._next: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        """In so many seconds; never before what is now."""
        self._count += 1
        heapq.heappush(self._next, (self.now_s + max(delay_s, 0.0), self._count, what))

    def run(self, until_s: float) -> None:
        """Everything that happens before `until_s`."""
        while self._next and self._next[0][0] < until_s:
            self.now_s, _, what = heapq.heappop(self._next)
            what()
        self.now_s = until_s
