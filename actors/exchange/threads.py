"""Threads for gRPC handlers that live as long as their streams."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


class DaemonThreads(Executor):
    """A thread a call, none of which outlives the process.

    ThreadPoolExecutor joins its threads when the interpreter ends, so a process whose streams are
    still open would never end. The server bounds how many there are: maximum_concurrent_rpcs.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:  # type: ignore[explicit-override]
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name=self._name, daemon=True).start()
        return future
