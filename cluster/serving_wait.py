"""Waiting for a Serve application, with progress for a person and reasons instead of traces."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.status import Status

from pilotfish import Client

READY_TIMEOUT_S = 1800.0  # a large model takes its time to load
EXECUTOR_TIMEOUT_S = 120.0  # compiling takes seconds
POLL_S = 0.5
_ERROR_LINE = re.compile(
    r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Model|Failed))(?:\([^)]*\))?: (.+)$"
)

_PERMANENT = ("ModelLoadError", "DrafterLoadError", "UnknownModel", "GrpcStartError", "TlsError")
"""Errors of a replica's start that no retry can mend, so nobody should wait for the next."""


class ServingError(Exception):
    """The application did not start; the message says why in words for a terminal."""


class Interrupted(Exception):
    """Somebody asked to stop before the application was ready."""


class Progress:
    """A spinner on a terminal, a line for each step elsewhere, nothing without a console.

    Steps are where a start can be given up: signal handlers set `stop` and raise nothing, for an
    exception in the midst of Ray's code can end in anything but a clean stop.
    """

    def __init__(self, console: Console | None, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()
        self._console = console
        self._status: Status | None = None
        self._said = ""

    def say(self, line: str) -> None:
        """What is being waited for; the same line twice is said once. Raises Interrupted."""
        self.pause(0.0)
        self.show(line)

    def pause(self, seconds: float) -> None:
        """Wait. Raises Interrupted as soon as somebody asks to stop."""
        if self._stop.wait(seconds):
            raise Interrupted

    def show(self, line: str) -> None:
        if self._console is None or line == self._said:
            return
        self._said = line
        if self._status is not None:
            self._status.update(line)
        else:
            self._console.print(line, highlight=False)

    def __enter__(self) -> Progress:
        if self._console is not None and self._console.is_terminal:
            self._status = self._console.status("starting")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()


def until_running(name: str, progress: Progress) -> None:
    """Until every replica is up; raises ServingError with the reason it is not."""
    from ray import serve

    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        app = serve.status().applications.get(name)
        if app is None:
            raise ServingError("the application was deleted while it was starting")
        if app.status == "RUNNING":
            return
        if app.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            raise ServingError(_reason(app))
        hopeless = [d.message for d in app.deployments.values() if is_permanent(d.message)]
        if hopeless:
            raise ServingError(last_error(hopeless[0]))
        waiting = sorted(n for n, d in app.deployments.items() if d.status != "HEALTHY")
        progress.say(f"waiting for {', '.join(waiting)}" if waiting else "starting")
        progress.pause(POLL_S)
    raise ServingError(f"not ready after {READY_TIMEOUT_S:.0f} s")


def until_settled(client: Client, timeout_s: float, pause: Callable[[float], None]) -> str:
    """What computes, once that no longer changes: nothing may be timed across the change."""
    deadline = time.monotonic() + timeout_s
    while True:
        states = sorted({verifier.executor for verifier in client.status().verifiers})
        if (states and "building" not in states) or time.monotonic() > deadline:
            return ", ".join(states)
        pause(POLL_S)


def _reason(app: Any) -> str:
    """What went wrong according to Serve's report on the deployment that failed."""
    failed = [d.message for d in app.deployments.values() if d.status == "DEPLOY_FAILED"]
    return last_error(next((message for message in failed if message), app.message))


def is_permanent(message: str) -> bool:
    """Whether Serve's report on a deployment tells of an error that will come again."""
    names = [match.group(1) for line in message.splitlines() if (match := _ERROR_LINE.match(line))]
    return any(name in _PERMANENT for name in names)


def last_error(message: str) -> str:
    """The text of the last `SomeError: text` line of a traceback, else the last line."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    matches = [match for line in lines if (match := _ERROR_LINE.match(line))]
    if matches:
        return matches[-1].group(2)
    return lines[-1] if lines else "Serve gave no reason"
