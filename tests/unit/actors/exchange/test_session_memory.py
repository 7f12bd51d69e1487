"""A drafter's sessions keep no more than its device has: who would not fit is told at once."""

from __future__ import annotations

from actors.contracts import DrafterInfo
from actors.exchange.limits import Limits
from cluster.deployments.drafting import session_bytes
from pilotfish.v1 import exchange_pb2 as pb
from tests.unit.actors.exchange.helpers import ToyDrafter, wait_for
from tests.unit.actors.exchange.wire import speaking

LIMITS = Limits(max_session_bytes=1000)  # ten tokens of 100 bytes


def test_a_session_that_would_not_fit_is_refused_and_fits_when_another_has_gone() -> None:
    drafter = ToyDrafter(token_bytes=100)
    with speaking(drafter, limits=LIMITS) as wire:
        wire.open("a", (1, 2, 3, 4, 5, 6))
        wire.open("b", (1, 2, 3, 4, 5))
        fault = wire.fault()
        assert (fault.key.request, fault.code) == ("b", pb.FAULT_OVERLOADED)
        assert "6 tokens in 1000 bytes" in fault.detail
        wire.close("a")
        wire.open("b", (1, 2, 3, 4, 5), epoch=1)
        wire.commit("b", 5, epoch=1)
        assert wire.block().base_len == 6
        wait_for(lambda: {k.request for k in drafter.tokens} == {"b"})


def test_a_session_that_outgrows_the_memory_goes_and_the_others_stay() -> None:
    drafter = ToyDrafter(token_bytes=100)
    with speaking(drafter, limits=LIMITS) as wire:
        wire.open("a", (1, 2, 3, 4))
        wire.open("b", (1, 2, 3))
        wire.commit("a", 4, (5, 6, 7))
        assert wire.block().key.request == "a"
        wire.commit("b", 3, (4,))
        fault = wire.fault()
        assert (fault.key.request, fault.code) == ("b", pb.FAULT_OVERLOADED)
        wire.commit("a", 7, (8, 9, 10))
        assert wire.block().base_len == 10
        wait_for(lambda: {k.request for k in drafter.tokens} == {"a"})


def test_a_session_that_is_opened_again_is_counted_once() -> None:
    drafter = ToyDrafter(token_bytes=100)
    with speaking(drafter, limits=LIMITS) as wire:
        for epoch in range(5):
            wire.open("a", (1, 2, 3, 4, 5, 6), epoch=epoch)
        wire.commit("a", 6, epoch=4)
        assert wire.block().base_len == 7


def test_drafters_of_tokens_alone_have_no_bound_and_models_one_below_what_is_free() -> None:
    assert session_bytes(DrafterInfo("suffix", "1"), "cpu") == 0
    assert session_bytes(DrafterInfo("draft_model", "1", token_bytes=8), "cpu") > 2**20
