"""The drafter, watched: a benchmark whose drafter was not alive would be a lie (law L6)."""

from __future__ import annotations

import os
import signal
import time

from cluster.sighting import Sighting, sighting
from pilotfish import Client


class DrafterLost(Exception):
    """Remote drafting did not happen; says what was found instead."""


def require_alive(now: Sighting, since: Sighting | None = None) -> None:
    """Raise DrafterLost unless a drafter is up, and the same ones as in `since`."""
    if not now.drafter_pids:
        raise DrafterLost("no drafter is registered with the policy")
    if not now.links_up:
        raise DrafterLost(f"no verifier is connected to the drafter (pid {now.drafter_pids[0]})")
    if since is not None and now.drafter_pids != since.drafter_pids:
        raise DrafterLost(
            f"the drafter was lost during the run: pid {_listed(since.drafter_pids)} became "
            f"{_listed(now.drafter_pids)}"
        )
    gone = [pid for pid in now.drafter_pids if not _running(pid)]
    if gone:
        raise DrafterLost(f"the drafter's process {gone[0]} has ended")


def await_alive(client: Client, timeout_s: float) -> Sighting:
    """The first sighting with a drafter up and connected; raises DrafterLost after timeout_s."""
    deadline = time.monotonic() + timeout_s
    while True:
        now = sighting(client.status())
        try:
            require_alive(now)
        except DrafterLost:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
            continue
        return now


def kill(pid: int) -> None:
    """End the drafter for the demonstration of what its loss looks like."""
    os.kill(pid, signal.SIGKILL)


def _listed(pids: tuple[int, ...]) -> str:
    return ", ".join(map(str, pids))


def _running(pid: int) -> bool:
    """Whether the process exists; one on another host cannot be seen and counts as running when
    its link is up, which the caller has checked."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
