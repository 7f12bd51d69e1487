"""The control channel: frames in order, and a peer that is gone or hangs is noticed."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import pytest

from actors.engine.tp.channel import Channel, ChannelLost, Frame
from actors.engine.tp.rendezvous import Patience

CALM = Patience(lost_after_s=60.0)
HASTY = Patience(beat_every_s=0.01, lost_after_s=0.1)
WAIT_S = 20.0


@contextmanager
def ended(*channels: Channel) -> Iterator[None]:
    try:
        yield
    finally:
        for channel in channels:
            channel.close()


def ends() -> tuple[Connection, Connection]:
    return multiprocessing.Pipe()  # type: ignore[return-value]


def losses(channel: Channel) -> queue.SimpleQueue[str]:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    channel.guard(told.put)
    return told


def test_frames_arrive_whole_and_in_order() -> None:
    near, far = (Channel(end, "peer", CALM) for end in ends())
    with ended(near, far):
        for number in range(100):
            near.send(b"STEP", bytes(number * 1000))
        for number in range(100):
            assert far.receive(WAIT_S) == Frame(b"STEP", bytes(number * 1000))


def test_a_peer_that_ends_is_noticed_at_once_and_every_later_call_says_so() -> None:
    mine, other = ends()
    channel = Channel(mine, "rank 1", CALM)
    with ended(channel):
        told = losses(channel)
        other.close()
        assert told.get(timeout=WAIT_S) == "rank 1 has ended"
        for _ in range(2):
            with pytest.raises(ChannelLost, match="rank 1 has ended"):
                channel.receive(WAIT_S)


def test_a_guard_that_comes_after_the_loss_is_told_as_well() -> None:
    mine, other = ends()
    channel = Channel(mine, "rank 1", CALM)
    with ended(channel):
        other.close()
        with pytest.raises(ChannelLost):
            channel.receive(WAIT_S)
        assert losses(channel).get(timeout=WAIT_S) == "rank 1 has ended"


def test_a_peer_that_hangs_is_noticed_though_its_connection_stands() -> None:
    mine, other = ends()
    channel = Channel(mine, "rank 1", HASTY)
    with ended(channel):
        assert losses(channel).get(timeout=WAIT_S) == "rank 1 was silent for 0.1 s"
    other.close()


def test_a_channel_with_nothing_to_say_still_beats() -> None:
    mine, other = ends()
    channel = Channel(mine, "rank 1", Patience(beat_every_s=0.01))
    with ended(channel):
        for _ in range(3):
            assert other.recv_bytes() == b"BEAT"
    other.close()


def test_two_quiet_ends_keep_each_other_alive() -> None:
    patience = Patience(beat_every_s=0.01, lost_after_s=5.0)
    mine, other = ends()
    near, far = Channel(mine, "far", patience), Channel(other, "near", patience)
    with ended(near, far):
        with pytest.raises(ChannelLost, match="did not answer within"):
            near.receive(0.2)
        far.send(b"STEP")
        assert near.receive(WAIT_S) == Frame(b"STEP", b"")


def test_after_a_farewell_the_peers_end_is_no_loss() -> None:
    mine, other = ends()
    near, far = Channel(mine, "far", CALM), Channel(other, "near", CALM)
    told, leaving = losses(near), threading.Thread(target=near.close, args=(b"STOP",))
    leaving.start()
    assert far.receive(WAIT_S) == Frame(b"STOP", b"")
    far.close()
    leaving.join(WAIT_S)
    assert not leaving.is_alive()
    assert told.empty()
