"""Ctrl-C and SIGTERM as an event: nothing is raised where Ray's code may be at work."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

from cluster.serving_wait import Interrupted

T = TypeVar("T")


class Stop:
    """`event` is set by the first signal; the next one is deadly: whoever sends two means it."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._cancel: Callable[[], object] | None = None

    def install(self) -> None:
        """On the main thread."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def set(self) -> None:
        self.event.set()
        cancel = self._cancel
        if cancel is not None:
            cancel()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """`asyncio.run` that a stop cancels. Raises Interrupted then, once `work` has ended."""
        return asyncio.run(self._unless_stopped(work))

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if self.event.is_set():
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if self.event.is_set():
                raise Interrupted from None
            raise
        finally:
            self._cancel = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        self.set()
