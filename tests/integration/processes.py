"""Helpers of the fault tests: wait for a condition, end one process by its pid."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(probe: Callable[[], T], timeout_s: float, every_s: float = 0.05) -> T:
    """The first true value of `probe`; its last value fails the test after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (value := probe()):
        assert time.monotonic() < deadline, f"still {value!r} after {timeout_s} s"
        time.sleep(every_s)
    return value


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
