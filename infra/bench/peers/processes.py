"""One runner in a process group of its own: it ends in time, or it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

GRACE_S = 40.0  # a server that stops cleanly needs some of it


def run(
    command: Sequence[str], environ: Mapping[str, str], log: Path, timeout_s: float
) -> str | None:
    """None when the command ended well, else why it did not. Nothing of it is left either way,
    on an interrupt as little as after the timeout."""
    log.parent.mkdir(parents=True, exist_ok=True)
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with log.open("w", encoding="utf-8") as sink:
        process = subprocess.Popen(
            command,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env={**inherited, **environ},
            start_new_session=True,
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return f"not done after {timeout_s:.0f} s; see {log}"
        finally:
            _end(process)
    return None if code == 0 else f"{_how(code)}; see {log}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """The group: asked first, then killed, stragglers of an ended leader too."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        if process.poll() is None:
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                continue


def _how(code: int) -> str:
    """-4 is SIGILL: built for another processor."""
    if code >= 0:
        return f"exit code {code}"
    return f"ended by {signal.Signals(-code).name}"
