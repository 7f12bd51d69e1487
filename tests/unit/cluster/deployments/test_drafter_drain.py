"""A drafter replica that Serve wants gone: what it does first, and in which order."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.deployments import drafter as module
from cluster.deployments.drafter import Drafter
from pilotfish.v1 import control_pb2 as pb
from pilotfish.v1.demand_pb2 import DrafterStanding


class World:
    """The policy actor and the drafting server, and what was done to them in order.

    moves: verifiers take the sessions elsewhere when they hear of the drain."""

    def __init__(self, sessions: int, *, moves: bool = True, policy: bool = True) -> None:
        self.sessions = sessions
        self.moves, self.policy = moves, policy
        self.done: list[str] = []
        self.renew = SimpleNamespace(remote=self._renew)
        self.release = SimpleNamespace(remote=self._release)

    async def _renew(self, endpoint: bytes) -> bytes:
        if not self.policy:
            raise RuntimeError("the policy is gone")
        draining = pb.DrafterEndpoint.FromString(endpoint).draining
        self.done.append("draining" if draining else "renewed")
        if draining and self.moves:
            self.sessions = 0
        return DrafterStanding(wanted=not draining, late_share=0.25).SerializeToString()

    async def _release(self, drafter: str) -> None:
        if not self.policy:
            raise RuntimeError("the policy is gone")
        self.done.append(f"released {drafter} with {self.sessions}")

    def stop(self, grace_s: float) -> None:
        self.done.append("stopped")

    def load(self) -> dict[str, float]:
        return {"sessions": float(self.sessions), "busy_share": 0.5}


def replica(world: World) -> Any:
    """As its constructor leaves it, without Serve."""
    made: Any = Drafter.__new__(Drafter)
    made._policy = made._drafting = world
    made._provider = None
    made._endpoint = pb.DrafterEndpoint(drafter="d0")
    made._standing = DrafterStanding(wanted=True)
    made._renewing = asyncio.get_running_loop().create_task(asyncio.Event().wait())
    return made


async def test_sessions_move_before_the_lease_ends_and_the_server_stops() -> None:
    world = World(sessions=3)
    await replica(world).__del__()
    assert world.done == ["draining", "released d0 with 0", "stopped"]


async def test_without_sessions_there_is_nothing_to_wait_for() -> None:
    world = World(sessions=0)
    await replica(world).__del__()
    assert world.done == ["released d0 with 0", "stopped"]


async def test_sessions_that_nobody_takes_do_not_hold_it_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOVE_S", 0.01)
    world = World(sessions=3, moves=False)
    await replica(world).__del__()
    assert world.done == ["draining", "released d0 with 3", "stopped"]


async def test_a_policy_that_is_gone_is_not_waited_for() -> None:
    world = World(sessions=3, policy=False)
    await replica(world).__del__()
    assert world.done == ["stopped"]


async def test_what_the_policy_says_of_it_is_in_its_report() -> None:
    made = replica(World(sessions=1))
    assert made.record_autoscaling_stats()["wanted"] == 1.0
    await made._renew()
    assert made.record_autoscaling_stats() == {
        "sessions": 1.0,
        "busy_share": 0.5,
        "late_share": 0.25,
        "wanted": 1.0,
    }
