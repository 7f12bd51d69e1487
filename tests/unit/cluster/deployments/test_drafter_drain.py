"""A drafter replica that Serve wants gone: what it does first, and in which order."""

from __future__ import annotations

import asyncio
import gc
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from actors.policy.errors import Superseded
from cluster.config import AppArgs
from cluster.deployments import drafter as module
from cluster.deployments import speaking
from cluster.deployments.addresses import DataAddress
from cluster.deployments.drafter import Drafter
from pilotfish.v1 import control_pb2 as pb
from pilotfish.v1.demand_pb2 import DrafterStanding


class World:
    """The policy actor and the drafting server, and what was done to them in order.

    moves: verifiers take the sessions elsewhere when they hear of the drain. silent: every other
    call goes to a second policy actor, which does not speak."""

    port, mechanism, max_sessions = 7, "suffix", 64

    def __init__(
        self, sessions: int, *, moves: bool = True, policy: bool = True, silent: bool = False
    ) -> None:
        self.sessions = sessions
        self.moves, self.policy = moves, policy
        self.silent, self.calls = silent, 0
        self.done: list[str] = []
        self.renew = SimpleNamespace(remote=self._renew)
        self.release = SimpleNamespace(remote=self._release)

    def _asked(self) -> None:
        if not self.policy:
            raise RuntimeError("the policy is gone")
        self.calls += 1
        if self.silent and self.calls % 2:
            raise Superseded("another one speaks")

    async def _renew(self, endpoint: bytes) -> bytes:
        self._asked()
        draining = pb.DrafterEndpoint.FromString(endpoint).draining
        self.done.append("draining" if draining else "renewed")
        if draining and self.moves:
            self.sessions = 0
        return DrafterStanding(wanted=not draining, late_share=0.25).SerializeToString()

    async def _release(self, drafter: str) -> None:
        self._asked()
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
    await replica(world)._leave()
    assert world.done == ["draining", "released d0 with 0", "stopped"]


async def test_without_sessions_there_is_nothing_to_wait_for() -> None:
    world = World(sessions=0)
    await replica(world)._leave()
    assert world.done == ["released d0 with 0", "stopped"]


async def test_sessions_that_nobody_takes_do_not_hold_it_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOVE_S", 0.01)
    world = World(sessions=3, moves=False)
    await replica(world)._leave()
    assert world.done == ["draining", "released d0 with 3", "stopped"]


async def test_a_policy_that_is_gone_is_not_waited_for() -> None:
    world = World(sessions=3, policy=False)
    await replica(world)._leave()
    assert world.done == ["stopped"]


async def test_of_two_policies_the_one_that_speaks_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(speaking, "ASK_AGAIN_S", 0.0)
    world = World(sessions=3, silent=True)
    await replica(world)._leave()
    assert world.done == ["draining", "released d0 with 0", "stopped"]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a constructor asks of Serve and its node."""
    context = SimpleNamespace(
        replica_id=SimpleNamespace(unique_id="1"), deployment="Drafter-suffix"
    )
    monkeypatch.setattr(module.serve, "get_replica_context", lambda: context)
    monkeypatch.setattr(module, "this_node", lambda host: DataAddress("127.0.0.1", "127.0.0.1"))


async def test_serve_finds_the_way_out_on_the_replica_and_the_collector_finds_none(
    serve: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A destructor of the class that is a coroutine is made by the collector and never awaited."""
    world = World(sessions=0)
    monkeypatch.setattr(module, "_start_drafting", lambda *of: world)
    made: Any = Drafter.__new__(Drafter)
    await made.__init__(AppArgs(), world)
    await made.__del__()
    assert world.done[-2:] == ["released drafter-1 with 0", "stopped"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del made
        gc.collect()
    assert not hasattr(Drafter, "__del__")


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
