"""Helpers of the fault tests: wait for a condition, end one process by its pid."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pilotfish import Client, PilotfishError

T = TypeVar("T")


def eventually(probe: Callable[[], T], timeout_s: float, every_s: float = 0.05) -> T:
    """The first true value of `probe`; its last value fails the test after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (value := probe()):
        assert time.monotonic() < deadline, f"still {value!r} after {timeout_s} s"
        time.sleep(every_s)
    return value


def ready(client: Client, verifiers: int = 2, drafters: int = 2) -> bool:
    """Whether so many are there, and every verifier has a link to every drafter."""
    try:
        status = client.status()
    except PilotfishError:
        return False
    up = [sum(link.up for link in verifier.links) for verifier in status.verifiers]
    return len(status.drafters) == drafters and up == [drafters] * verifiers


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def end_group(process: subprocess.Popen[bytes], how: signal.Signals, within_s: float) -> None:
    """End the process and all of its group by a signal; harder where that is ignored."""
    os.killpg(process.pid, how)
    try:
        process.wait(timeout=within_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=within_s)


def descendants(pid: int) -> set[int]:
    """Every process below `pid` now."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
        except OSError:
            continue
        parent = int(stat[stat.rindex(")") + 2 :].split()[1])
        children.setdefault(parent, []).append(int(folder.name))
    found: set[int] = set()
    pending = [pid]
    while pending:
        below = children.get(pending.pop(), [])
        found.update(below)
        pending += below
    return found


def running_pids(pids: set[int]) -> set[int]:
    """Those of `pids` that still run; a zombie does not."""
    alive = set()
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        if stat[stat.rindex(")") + 2] != "Z":
            alive.add(pid)
    return alive
