import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from ray.serve.exceptions import BackPressureError

from cluster.deployments.router import ServeRouter
from cluster.gateway.errors import Overloaded
from cluster.gateway.verifier_link import VerifierAddress


@dataclass
class Selection:
    replica_metadata: dict[str, Any] | None


class Handle:
    """Offers replicas in turn, as Serve's handle does; counts the slots that are taken."""

    def __init__(self, *offers: dict[str, Any] | Exception | None) -> None:
        self._offers = list(offers)
        self.held = 0

    @asynccontextmanager
    async def choose_replica(self) -> AsyncGenerator[Selection, None]:
        offer = self._offers.pop(0) if len(self._offers) > 1 else self._offers[0]
        if isinstance(offer, Exception):
            raise offer
        self.held += 1
        try:
            yield Selection(offer)
        finally:
            self.held -= 1


def make_offer(name: str) -> dict[str, Any]:
    return {"verifier": name, "data_addr": f"127.0.0.1:{len(name)}", "pid": 1}


async def test_a_slot_is_held_exactly_as_long_as_the_request_runs() -> None:
    handle = Handle(make_offer("v0"))
    async with ServeRouter(handle).choose("r", frozenset()) as address:
        assert address == VerifierAddress("v0", "127.0.0.1:2")
        assert handle.held == 1
    assert handle.held == 0


async def test_excluded_verifiers_are_passed_over_and_their_slots_given_back() -> None:
    handle = Handle(make_offer("dead"), make_offer("dead"), make_offer("v1"))
    async with ServeRouter(handle).choose("r", frozenset({"dead"})) as address:
        assert address.name == "v1"
        assert handle.held == 1


async def test_while_only_a_dead_one_is_offered_the_router_waits_until_it_is_cancelled() -> None:
    handle = Handle(make_offer("dead"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1), ServeRouter(handle).choose("r", frozenset({"dead"})):
            pass
    assert handle.held == 0


async def test_a_replica_that_has_not_told_its_address_is_not_ready() -> None:
    handle = Handle(None, {}, make_offer("v1"))
    async with ServeRouter(handle).choose("r", frozenset()) as address:
        assert address.name == "v1"


async def test_every_slot_taken_is_overload() -> None:
    handle = Handle(BackPressureError(num_queued_requests=1, max_queued_requests=1))
    with pytest.raises(Overloaded):
        async with ServeRouter(handle).choose("r", frozenset()):
            pass


async def test_an_error_of_the_request_gives_the_slot_back_and_is_the_callers() -> None:
    handle = Handle(make_offer("v0"))
    with pytest.raises(RuntimeError, match="mine"):
        async with ServeRouter(handle).choose("r", frozenset()):
            raise RuntimeError("mine")
    assert handle.held == 0
