"""A bad message costs its own session, never a stream or a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from actors.contracts import Commit, Proposal, SessionKey
from actors.exchange import codec
from actors.exchange.compat import Compat
from actors.exchange.limits import Limits
from pilotfish.v1 import exchange_pb2 as pb
from tests.unit.actors.exchange.helpers import ToyDrafter, continuation, serving, wait_for
from tests.unit.actors.exchange.wire import TIMEOUT_S, Wire, speaking, wired


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


def test_a_bug_in_the_worker_costs_its_sessions_and_not_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drafter = ToyDrafter()
    with speaking(drafter) as wire:
        wire.open("r")
        wait_for(lambda: len(drafter.tokens) == 1)
        with monkeypatch.context() as patch:
            patch.setattr("actors.exchange.sessions.SessionTable.ready", None)
            wire.commit("r", 2)
            assert wire.fault().code == pb.FAULT_INTERNAL
            assert drafter.wait_empty()
        wire.open("r", epoch=1)
        wire.commit("r", 2, epoch=1)
        assert wire.block().base_len == 3
