"""The drafter's server against a client that speaks the wire itself, well or badly."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc
import pytest
import torch

from actors.contracts import Commit, OpenSession, Proposal, SessionKey
from actors.exchange import codec
from actors.exchange.compat import PROTOCOL, Compat
from actors.exchange.limits import MAX_RECEIVE_BYTES, Limits, channel_options
from actors.exchange.server import DraftingServer
from pilotfish.v1 import exchange_pb2 as pb
from pilotfish.v1 import exchange_pb2_grpc as pb_grpc
from tests.unit.actors.exchange.helpers import GREEDY, ToyDrafter, continuation, serving, wait_for

TIMEOUT_S = 10.0


class Wire:
    """One stream, by hand."""

    def __init__(self, address: str, *, options: Any = None, **hello: Any) -> None:
        self.channel = grpc.insecure_channel(
            address, options=channel_options() if options is None else options
        )
        self._frames: queue.Queue[pb.VerifierFrame | None] = queue.Queue()
        self._answers: queue.Queue[pb.DrafterFrame | None] = queue.Queue()
        self.verifier = hello.get("verifier", "v0")
        fields: dict[str, Any] = {
            "protocol": PROTOCOL,
            "verifier": "v0",
            "boot_epoch": 1,
            "lane": pb.LANE_ROUND,
            "compat": codec.compat_to_pb(hello.pop("compat", Compat())),
        }
        self.send(pb.VerifierFrame(hello=pb.Hello(**{**fields, **hello})))
        self.call = pb_grpc.DraftingStub(self.channel).Exchange(iter(self._frames.get, None))
        self.error: grpc.RpcError | None = None
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        try:
            for frame in self.call:
                self._answers.put(frame)
        except grpc.RpcError as error:
            self.error = error
        self._answers.put(None)

    def send(self, frame: pb.VerifierFrame) -> None:
        self._frames.put(frame)

    def answer(self) -> pb.DrafterFrame:
        frame = self._answers.get(timeout=TIMEOUT_S)
        assert frame is not None, f"the stream ended: {self.error}"
        return frame

    def ended(self) -> grpc.RpcError | None:
        while self._answers.get(timeout=TIMEOUT_S) is not None:
            pass
        return self.error

    def block(self) -> pb.Block:
        """The next block; anything else fails the test."""
        frame = self.answer()
        assert not frame.faults, frame
        (block,) = frame.blocks
        return block

    def fault(self) -> pb.Fault:
        frame = self.answer()
        assert not frame.blocks, frame
        (fault,) = frame.faults
        return fault

    def open(self, request: str, tokens: tuple[int, ...] = (1, 2), **fields: Any) -> None:
        self.send(pb.VerifierFrame(opens=[self.opening(request, tokens, **fields)]))

    def opening(self, request: str, tokens: tuple[int, ...], **fields: Any) -> pb.Open:
        epoch = fields.pop("epoch", 0)
        key = SessionKey(self.verifier, request, epoch)
        follow = fields.pop("follow", False)
        message = codec.open_to_pb(OpenSession(key, tokens, GREEDY), features_follow=follow)
        for name, value in fields.items():
            getattr(message, name).CopyFrom(value)
        return message

    def commit(
        self,
        request: str,
        from_len: int,
        tokens: tuple[int, ...] = (3,),
        *,
        depth: int = 4,
        epoch: int = 0,
        rows: torch.Tensor | None = None,
    ) -> None:
        key = SessionKey(self.verifier, request, epoch)
        commit = Commit(key, 1, from_len, tokens, rows, depth)
        self.send(pb.VerifierFrame(commits=[codec.commit_to_pb(commit)]))

    def close(self, request: str, epoch: int = 0) -> None:
        key = pb.SessionKey(request=request, epoch=epoch)
        self.send(pb.VerifierFrame(closes=[pb.Close(key=key, reason="stop")]))

    def end(self) -> None:
        self._frames.put(None)

    def stop(self) -> None:
        self.end()
        self.call.cancel()
        self.channel.close()


@contextmanager
def wired(address: str, **hello: Any) -> Iterator[Wire]:
    wire = Wire(address, **hello)
    try:
        assert wire.answer().welcome.info.max_sessions > 0
        yield wire
    finally:
        wire.stop()


@contextmanager
def speaking(drafter: ToyDrafter, **options: Any) -> Iterator[Wire]:
    with serving(drafter, **options) as endpoint, wired(endpoint.address) as wire:
        yield wire


# ---------------------------------------------------------------------------------- hello


@pytest.mark.parametrize(
    ("field", "hello"),
    [
        ("protocol", {"protocol": PROTOCOL + 1}),
        ("target", {"compat": Compat(target="other")}),
        ("tokenizer", {"compat": Compat(tokenizer="other")}),
        ("drafter", {"compat": Compat(drafter="other")}),
        ("taps", {"compat": Compat(taps=(1, 3))}),
        ("rule", {"compat": Compat(taps=(1, 2), rule="typical")}),
        ("verifier", {"compat": Compat(taps=(1, 2)), "verifier": ""}),
        ("lane", {"compat": Compat(taps=(1, 2)), "lane": pb.LANE_UNSPECIFIED}),
        ("lane", {"compat": Compat(taps=(1, 2)), "lane": pb.LANE_BULK}),  # no round lane
    ],
)
def test_a_mismatch_refuses_the_stream_by_the_name_of_the_field(
    field: str, hello: dict[str, Any]
) -> None:
    ours = Compat("target", "tokenizer", "drafter")
    with serving(ToyDrafter(taps=(1, 2)), compat=ours) as endpoint:
        wire = Wire(endpoint.address, **hello)
        error = wire.ended()
        wire.stop()
    assert isinstance(error, grpc.Call)
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (error.details() or "").startswith(f"{field}: ")


def test_a_stream_without_hello_is_refused() -> None:
    with serving(ToyDrafter()) as endpoint, grpc.insecure_channel(endpoint.address) as channel:
        call = pb_grpc.DraftingStub(channel).Exchange(iter([pb.VerifierFrame(ping_ns=1)]))
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.details().startswith("hello: ")


def test_describe_tells_what_the_drafter_can_do() -> None:
    drafter = ToyDrafter(taps=(1, 2), vocab_size=97, max_context=50)
    with (
        serving(drafter, limits=Limits(max_sessions=7)) as endpoint,
        grpc.insecure_channel(endpoint.address) as channel,
    ):
        info = pb_grpc.DraftingStub(channel).Describe(pb.DescribeRequest(), timeout=TIMEOUT_S)
    assert codec.info_from_pb(info) == drafter.info
    assert info.max_sessions == 7


def test_a_busy_port_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = DraftingServer(ToyDrafter(), name="d0")
        with pytest.raises(OSError, match="cannot bind"):
            server.start(port=taken.getsockname()[1])
        server.stop(0)


# ---------------------------------------------------------------------------------- quarantine


def garble_tokens(wire: Wire) -> pb.VerifierFrame:
    return pb.VerifierFrame(
        commits=[pb.Commit(key=pb.SessionKey(request="bad"), from_len=2, tokens=[10**6], depth=1)]
    )


def garble_tensor(wire: Wire) -> pb.VerifierFrame:
    frame = garble_tokens(wire)
    frame.commits[0].tokens[0] = 3
    frame.commits[0].features.dtype = "f64"
    return frame


def empty_commit(wire: Wire) -> pb.VerifierFrame:
    return pb.VerifierFrame(commits=[pb.Commit(key=pb.SessionKey(request="bad"), from_len=2)])


def gap(wire: Wire) -> pb.VerifierFrame:
    return pb.VerifierFrame(
        commits=[pb.Commit(key=pb.SessionKey(request="bad"), from_len=3, tokens=[1], depth=1)]
    )


def overlap(wire: Wire) -> pb.VerifierFrame:
    return pb.VerifierFrame(
        commits=[pb.Commit(key=pb.SessionKey(request="bad"), from_len=1, tokens=[1], depth=1)]
    )


def open_twice(wire: Wire) -> pb.VerifierFrame:
    return pb.VerifierFrame(opens=[wire.opening("bad", (1,))])


def no_sampling(wire: Wire) -> pb.VerifierFrame:
    return pb.VerifierFrame(opens=[pb.Open(key=pb.SessionKey(request="bad", epoch=0), tokens=[1])])


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (garble_tokens, pb.FAULT_INVALID),
        (garble_tensor, pb.FAULT_INVALID),
        (empty_commit, pb.FAULT_INVALID),
        (gap, pb.FAULT_GAP),
        (overlap, pb.FAULT_GAP),
        (open_twice, pb.FAULT_INVALID),
        (no_sampling, pb.FAULT_INVALID),
    ],
)
def test_a_bad_message_ends_its_own_session_and_nothing_else(
    message: Callable[[Wire], pb.VerifierFrame], code: pb.FaultCode
) -> None:
    drafter = ToyDrafter(vocab_size=97)
    with speaking(drafter) as wire:
        wire.open("good")
        wire.open("bad")
        wire.send(message(wire))
        fault = wire.fault()
        assert (fault.key.request, fault.code) == ("bad", code)
        assert fault.detail
        wire.commit("good", 2)
        assert tuple(wire.block().tokens) == continuation((1, 2, 3), 4)
        wait_for(lambda: [k.request for k in drafter.tokens] == ["good"])
        # What follows for the session that is out is answered, not guessed.
        wire.commit("bad", 2)
        assert wire.fault().code == pb.FAULT_UNKNOWN_SESSION
        # It may be opened again, with a higher epoch.
        wire.open("bad", epoch=1)
        wire.commit("bad", 2, epoch=1)
        assert wire.block().key.epoch == 1


def test_an_unknown_session_is_a_fault_and_an_older_epoch_is_dropped() -> None:
    drafter = ToyDrafter()
    with speaking(drafter) as wire:
        wire.commit("stranger", 2)
        assert wire.fault().code == pb.FAULT_UNKNOWN_SESSION
        wire.open("r", epoch=5)
        wire.open("r", epoch=4)
        wire.commit("r", 2, epoch=4)
        wire.close("r", epoch=4)
        wire.commit("r", 2, epoch=5)
        assert wire.block().key.epoch == 5
        wire.open("r", epoch=6)  # replaces: the drafter never holds two of one request
        wire.commit("r", 2, epoch=6)
        assert wire.block().key.epoch == 6
        assert [k.epoch for k in drafter.tokens] == [6]


def test_one_session_that_breaks_a_batch_is_found_and_the_others_get_their_blocks() -> None:
    """S51: the batch raises, each session is asked alone, the failing one is out."""
    drafter = ToyDrafter()

    def spoil(proposals: list[Proposal]) -> list[Proposal]:
        if any(p.key.request == "r1" for p in proposals):
            raise RuntimeError("broken")
        return proposals

    drafter.spoil = spoil
    with speaking(drafter) as wire:
        wire.send(pb.VerifierFrame(opens=[wire.opening(f"r{i}", (1, 2)) for i in range(4)]))
        commits = [Commit(SessionKey("v0", f"r{i}"), 1, 2, (3,), None, 4) for i in range(4)]
        wire.send(pb.VerifierFrame(commits=[codec.commit_to_pb(c) for c in commits]))
        frame = wire.answer()
        assert {b.key.request for b in frame.blocks} == {"r0", "r2", "r3"}
        (fault,) = frame.faults
        assert (fault.key.request, fault.code) == ("r1", pb.FAULT_INTERNAL)
        assert "broken" in fault.detail
        wait_for(lambda: {k.request for k in drafter.tokens} == {"r0", "r2", "r3"})


def test_a_full_drafter_says_so_at_once() -> None:
    drafter = ToyDrafter()
    busy, gate = threading.Event(), threading.Event()

    def hold(proposals: list[Proposal]) -> list[Proposal]:
        busy.set()
        gate.wait(TIMEOUT_S)
        return proposals

    drafter.spoil = hold
    with speaking(drafter, limits=Limits(max_sessions=2)) as wire:
        wire.open("r0")
        wire.open("r1")
        wire.commit("r0", 2)
        assert busy.wait(TIMEOUT_S)
        wire.open("r2")
        fault = wire.fault()  # while the worker is still busy
        assert (fault.key.request, fault.code) == ("r2", pb.FAULT_OVERLOADED)
        gate.set()
        assert wire.block().key.request == "r0"


def test_idle_sessions_are_evicted_and_busy_ones_stay() -> None:
    now = [0.0]
    drafter = ToyDrafter()
    with speaking(drafter, idle_s=60.0, clock=lambda: now[0]) as wire:
        wire.open("idle")
        wire.open("busy")
        wire.commit("busy", 2)
        wire.block()
        now[0] = 59.0
        wire.commit("busy", 3)
        wire.block()
        now[0] = 75.0
        wire.commit("busy", 4)
        wire.block()
        fault = wire.fault()
        assert (fault.key.request, fault.code) == ("idle", pb.FAULT_EVICTED)
        wait_for(lambda: [k.request for k in drafter.tokens] == ["busy"])


def test_features_out_of_order_or_of_another_width_are_refused() -> None:
    drafter = ToyDrafter(taps=(1,))
    with serving(drafter) as endpoint:
        compat = Compat(taps=(1,))
        with (
            wired(endpoint.address, compat=compat) as wire,
            wired(endpoint.address, compat=compat, lane=pb.LANE_BULK) as bulk,
        ):

            def rows(request: str, from_row: int, count: int, width: int = 4) -> pb.VerifierFrame:
                part = pb.Features(key=pb.SessionKey(request=request), from_row=from_row)
                part.rows.CopyFrom(codec.tensor_to_pb(torch.zeros(count, width).bfloat16()))
                return pb.VerifierFrame(features=[part])

            for name in ("gap", "over", "width", "good", "late"):
                wire.open(name, (1, 2, 3, 4), follow=True)
            wire.send(pb.VerifierFrame(ping_ns=1))
            assert wire.answer().pong_ns == 1
            bulk.send(rows("gap", 1, 1))
            assert (f := wire.fault()).code == pb.FAULT_GAP, f
            bulk.send(rows("over", 0, 4))
            assert wire.fault().code == pb.FAULT_GAP
            bulk.send(rows("width", 0, 1))
            bulk.send(rows("width", 1, 1, width=5))
            assert wire.fault().code == pb.FAULT_INVALID
            bulk.send(rows("good", 0, 2))
            wire.commit("good", 4, rows=torch.zeros(1, 4).bfloat16())
            bulk.send(rows("good", 2, 1))
            assert wire.block().base_len == 5
            wire.commit("good", 5)  # without features
            assert wire.fault().code == pb.FAULT_INVALID
            assert drafter.wait_empty()


def test_features_of_sessions_that_are_opening_are_bounded_together() -> None:
    drafter = ToyDrafter(taps=(1,))
    with serving(drafter, limits=Limits(max_feature_bytes=1000)) as endpoint:
        compat = Compat(taps=(1,))
        with wired(endpoint.address, compat=compat) as wire:
            for name in ("a", "b", "c"):
                wire.open(name, (1, 2, 3), follow=True)
                wire.commit(name, 3, rows=torch.zeros(1, 200).bfloat16())
            fault = wire.fault()
            assert (fault.key.request, fault.code) == ("c", pb.FAULT_OVERLOADED)
            wire.close("a")
            wire.open("d", (1, 2, 3), follow=True)
            wire.commit("d", 3, rows=torch.zeros(1, 200).bfloat16())
            wire.send(pb.VerifierFrame(ping_ns=1))
            assert wire.answer().pong_ns == 1


# ---------------------------------------------------------------------------------- ends


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
        wire.call.cancel()
        bulk.ended()


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


def test_more_streams_than_the_limit_are_refused_and_not_queued() -> None:
    with (
        serving(ToyDrafter(), limits=Limits(max_streams=0)) as endpoint,
        wired(endpoint.address),
        wired(endpoint.address, verifier="v1"),
    ):  # two to spare
        third = Wire(endpoint.address, verifier="v2")
        error = third.ended()
        third.stop()
        assert isinstance(error, grpc.Call)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_quiet_stream_survives_its_own_keepalive() -> None:
    """Pings without data are no abuse: gRPC's default would end the stream at the third."""
    drafter = ToyDrafter()
    done = threading.Event()
    with (
        serving(drafter) as endpoint,
        wired(endpoint.address, options=channel_options(keepalive_ms=100)) as wire,
    ):
        wire.open("r")
        assert not done.wait(1.5)  # nothing is said for fifteen keepalives
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


# ---------------------------------------------------------------------------------- work


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
