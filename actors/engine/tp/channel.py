"""One end of the control channel between rank 0 and another rank (ADR 0004).

Frames of a tag and a payload on a loopback connection that has proved a shared key. One thread
reads and one beats, so a peer that ended is noticed at once, and one that hangs after
`lost_after_s`, whatever the rest of this process does meanwhile.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NamedTuple

from actors.engine.errors import EngineError
from actors.engine.tp.rendezvous import Patience

TAG_BYTES = 4
MAX_FRAME_BYTES = 64 << 20
_BEAT = b"BEAT"
_FAREWELL_S = 5.0


class ChannelLost(EngineError):
    """The peer ended, hung or broke the protocol; the message says which."""


class Frame(NamedTuple):
    tag: bytes
    payload: bytes


class Channel:
    """`send` and `receive` frames; `guard` is told of a loss as soon as it happens."""

    def __init__(self, connection: Connection, peer: str, patience: Patience) -> None:
        self.peer = peer
        self._connection = connection
        self._socket = _socket_of(connection)
        self._patience = patience
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._sending = threading.Lock()
        self._losing = threading.Lock()
        self._on_lost: Callable[[str], None] | None = None
        self._lost = ""
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"{peer}-{work.__name__}", daemon=True)
            for work in (self._read, self._beat)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, tag: bytes, payload: bytes = b"") -> None:
        """Raises ChannelLost."""
        try:
            with self._sending:
                self._connection.send_bytes(tag + payload)
        except OSError as error:
            raise ChannelLost(self._lost or f"{self.peer} cannot be reached: {error}") from error

    def receive(self, timeout_s: float | None = None) -> Frame:
        """The next frame; raises ChannelLost, also when none comes within `timeout_s`."""
        try:
            frame = self._frames.get(timeout=timeout_s)
        except queue.Empty:
            raise ChannelLost(f"{self.peer} did not answer within {timeout_s:.0f} s") from None
        if frame is None:
            self._frames.put(None)  # for whoever asks next
            raise ChannelLost(self._lost)
        return frame

    def guard(self, on_lost: Callable[[str], None]) -> None:
        """Call `on_lost` with a reason when the peer is lost, or at once when it already is."""
        with self._losing:
            self._on_lost = on_lost
            lost = self._lost
        if lost:
            on_lost(lost)

    def close(self, farewell: bytes | None = None) -> None:
        """End it: from here on a peer that goes is no loss. With a farewell the peer has a
        moment to go first."""
        self._ending.set()
        if farewell is not None:
            with suppress(ChannelLost):
                self.send(farewell)
                self._threads[0].join(_FAREWELL_S)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_FAREWELL_S)
        self._socket.close()
        self._connection.close()

    # -- threads ----------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            while self._connection.poll(self._patience.lost_after_s):
                data = self._connection.recv_bytes(MAX_FRAME_BYTES)
                if data[:TAG_BYTES] != _BEAT:
                    self._frames.put(Frame(data[:TAG_BYTES], data[TAG_BYTES:]))
            self._lose(f"{self.peer} was silent for {self._patience.lost_after_s:g} s")
        except (EOFError, OSError):
            self._lose(f"{self.peer} has ended")

    def _beat(self) -> None:
        with suppress(ChannelLost):
            while not self._ending.wait(self._patience.beat_every_s):
                self.send(_BEAT)

    def _lose(self, reason: str) -> None:
        with self._losing:
            self._lost = reason
            on_lost = None if self._ending.is_set() else self._on_lost
        self._frames.put(None)
        if on_lost is not None:
            on_lost(reason)


def _socket_of(connection: Connection) -> socket.socket:
    """The connection's socket under a second descriptor: to send small frames at once, and to
    wake its reader at the end."""
    own = socket.socket(fileno=os.dup(connection.fileno()))
    if own.family != socket.AF_UNIX:
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return own
