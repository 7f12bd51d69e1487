"""Streams as the drafter serves them: their ends, their limits, the work on them."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import grpc
import pytest

from actors.contracts import Proposal
from actors.exchange.compat import Compat
from actors.exchange.limits import MAX_RECEIVE_BYTES, channel_options
from actors.exchange.server import DraftingServer
from pilotfish.v1 import exchange_pb2 as pb
from tests.unit.actors.exchange.helpers import (
    Engine,
    ToyDrafter,
    View,
    ported,
    serving,
    wait_for,
)
from tests.unit.actors.exchange.wire import TIMEOUT_S, Wire, speaking, wired


def test_a_cancelled_stream_gives_its_sessions_back_while_the_handler_waits() -> None:
    """R12: no yield is needed to notice."""
    drafter = ToyDrafter()
    with (
        serving(drafter) as endpoint,
        wired(endpoint.address) as wire,
        wired(endpoint.address, verifier="v1") as other,
    ):
        wire.open("r")
        other.open("r")
        wait_for(lambda: len(drafter.tokens) == 2)
        wire.call.cancel()
        wait_for(lambda: [k.verifier for k in drafter.tokens] == ["v1"])
        other.end()  # half-closed: the same
        assert drafter.wait_empty()


def test_a_new_process_of_a_verifier_closes_every_session_of_the_old() -> None:
    drafter = ToyDrafter()
    with serving(drafter) as endpoint, wired(endpoint.address, boot_epoch=7) as old:
        old.open("r")
        wait_for(lambda: len(drafter.tokens) == 1)
        with wired(endpoint.address, boot_epoch=8) as new:
            assert drafter.wait_empty()
            assert old.ended() is None
            new.open("r")
            new.commit("r", 2)
            assert new.block().base_len == 3
            zombie = Wire(endpoint.address, boot_epoch=7)
            error = zombie.ended()
            zombie.stop()
            assert isinstance(error, grpc.Call)
            assert (error.details() or "").startswith("boot_epoch: ")
            new.commit("r", 3)
            assert new.block().base_len == 4


def test_the_bulk_lane_ends_with_its_round_lane() -> None:
    drafter = ToyDrafter(taps=(1,))
    compat = Compat(taps=(1,))
    with (
        serving(drafter) as endpoint,
        wired(endpoint.address, compat=compat) as wire,
        wired(endpoint.address, compat=compat, lane=pb.LANE_BULK) as bulk,
    ):
        assert bulk.call.is_active()
        wire.call.cancel()
        bulk.ended()
        assert not bulk.call.is_active()


def test_stopping_the_server_ends_streams_and_sessions() -> None:
    drafter = ToyDrafter()
    server = DraftingServer(drafter, name="d0")
    with wired(f"127.0.0.1:{server.start()}") as wire:
        wire.open("r")
        wait_for(lambda: len(drafter.tokens) == 1)
        server.stop(0.5)
        assert wire.ended() is None
        assert drafter.wait_empty()
        assert server.stats().sessions == 0


def test_a_drafting_thread_that_hangs_or_has_ended_is_not_alive() -> None:
    """The server would go on answering pings without it."""
    drafter = ToyDrafter()
    hung, gate = threading.Event(), threading.Event()

    def hang(proposals: list[Proposal]) -> list[Proposal]:
        hung.set()
        gate.wait(20)
        return proposals

    drafter.spoil = hang
    server = DraftingServer(drafter, name="d0")
    assert not server.alive()
    with wired(f"127.0.0.1:{server.start()}") as wire:
        assert server.alive(within_s=0.0)
        wire.open("r")
        wire.commit("r", 2)
        assert hung.wait(10)
        assert server.alive()
        assert not server.alive(within_s=0.0)
        gate.set()
        assert wire.block().base_len == 3
        server.stop(0.5)
    assert not server.alive()


def test_a_quiet_stream_survives_its_own_keepalive() -> None:
    """Pings without data are no abuse: gRPC's default would end the stream at the third."""
    drafter = ToyDrafter()
    done = threading.Event()
    with (
        serving(drafter) as endpoint,
        wired(endpoint.address, options=channel_options(keepalive_ms=100)) as wire,
    ):
        wire.open("r")
        assert not done.wait(7.0)  # nothing is said; gRPC sends one ping a second at most
        wire.commit("r", 2)
        assert wire.block().base_len == 3


@pytest.mark.parametrize("over", [False, True])
def test_a_frame_over_the_receive_limit_is_refused_and_not_a_hang(over: bool) -> None:
    """R03. The default of 4 MiB is lifted to 8 on both sides; beyond it is an error."""
    size = MAX_RECEIVE_BYTES + 1 if over else (4 << 20) + 1
    options = [("grpc.max_send_message_length", -1)]
    with serving(ToyDrafter()) as endpoint, wired(endpoint.address, options=options) as wire:
        frame = pb.VerifierFrame(ping_ns=5)
        frame.closes.add(reason="x" * size)
        wire.send(frame)
        if over:
            error = wire.ended()
            assert isinstance(error, grpc.Call)
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        else:
            assert wire.fault().code == pb.FAULT_INVALID  # a key without a request
            assert wire.answer().pong_ns == 5


def test_pings_come_back_with_the_drafters_load() -> None:
    with speaking(ToyDrafter()) as wire:
        wire.open("r")
        wire.commit("r", 2)
        wire.block()
        wire.send(pb.VerifierFrame(ping_ns=123))
        frame = wire.answer()
        assert frame.pong_ns == 123
        assert frame.load.sessions == 1
        assert 0.0 <= frame.load.busy_share <= 1.0


def test_commits_that_pile_up_are_drafted_once_on_the_newest_length() -> None:
    drafter = ToyDrafter()
    busy, gate = threading.Event(), threading.Event()

    def hold(proposals: list[Proposal]) -> list[Proposal]:
        busy.set()
        gate.wait(TIMEOUT_S)
        return proposals

    drafter.spoil = hold
    with speaking(drafter) as wire:
        wire.open("r")
        wire.commit("r", 2)
        assert busy.wait(TIMEOUT_S)
        for i in range(10):
            wire.commit("r", 3 + i)
        wire.send(pb.VerifierFrame(ping_ns=1))
        assert wire.answer().pong_ns == 1  # all of them have been read
        gate.set()
        assert [wire.block().base_len, wire.block().base_len] == [3, 13]
        assert len(drafter.batches) == 2


def test_a_drafters_context_and_block_bound_what_is_asked_of_it() -> None:
    drafter = ToyDrafter(max_context=6, max_block=3)
    with speaking(drafter) as wire:
        wire.open("r")
        wire.commit("r", 2, depth=60)
        assert len(wire.block().tokens) == 3
        wire.commit("r", 3, (1, 1), depth=60)
        assert len(wire.block().tokens) == 1  # position 5 is the last there is
        wire.commit("r", 5, depth=60)
        assert list(wire.block().tokens) == []


def test_traced_sessions_get_a_draft_span_and_others_none() -> None:
    spans: list[tuple[Any, ...]] = []
    seen = threading.Event()

    def on_span(*span: Any) -> None:
        spans.append(span)
        seen.set()

    with speaking(ToyDrafter(), on_span=on_span) as wire:
        trace = pb.Open().trace
        trace.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        trace.tracestate = "k=v"
        wire.open("traced", trace=trace)
        wire.open("other")
        wire.commit("other", 2)
        wire.block()
        wire.commit("traced", 2)
        wire.block()
        assert seen.wait(TIMEOUT_S)
        ((got, name, start_ns, end_ns, attributes),) = spans
        assert got == (trace.traceparent, "k=v")
        assert name == "draft"
        assert 0 < start_ns <= end_ns
        assert attributes == {
            "pilotfish.draft.mechanism": "toy",
            "pilotfish.draft.depth": 4,
            "pilotfish.draft.tokens": 4,
            "pilotfish.draft.sessions": 1,
        }


@pytest.mark.parametrize("state", ["k=v", "k=" + "v" * 510])
def test_a_requests_trace_context_reaches_its_drafters_spans_whole(state: str) -> None:
    """From the running request through the port, the wire and the drafter."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    spans: list[Any] = []
    seen = threading.Event()

    def on_span(*span: Any) -> None:
        spans.append(span)
        seen.set()

    with serving(ToyDrafter(), on_span=on_span) as endpoint, ported(endpoint) as port:
        engine = Engine(port)
        engine.start(View("r", [1, 2], trace=(parent, state)))
        engine.step()
        assert seen.wait(TIMEOUT_S)
        assert spans[0][0] == (parent, state)


def test_an_oversized_traceparent_is_not_kept() -> None:
    spans: list[Any] = []
    with speaking(ToyDrafter(), on_span=lambda *span: spans.append(span)) as wire:
        trace = pb.Open().trace
        trace.traceparent = "x" * 100_000
        wire.open("r", trace=trace)
        wire.commit("r", 2)
        wire.block()
        wire.commit("r", 3)
        wire.block()
        assert spans == []


def test_a_drafter_that_lies_about_its_info_cannot_widen_the_limits() -> None:
    drafter = ToyDrafter(max_block=0)
    drafter.info = replace(drafter.info, max_block=10**6)
    with speaking(drafter) as wire:
        wire.open("r")
        wire.commit("r", 2, depth=10**6)
        assert len(wire.block().tokens) == 64
