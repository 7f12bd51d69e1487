"""What waits to be sent to one drafter: bounded, and coalesced in place while the peer is slow.

The engine's thread puts, gRPC's sending thread takes; serialisation happens there. At most one
Open and one Commit wait for each session, however slow the peer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from actors.contracts import Commit, OpenSession, SessionKey
from actors.exchange.bell import Bell
from actors.exchange.codec import key_to_pb, open_to_pb
from actors.exchange.form import CHUNK_ROWS, FeatureForm
from actors.exchange.frames import feature_frames, round_frames
from actors.exchange.sessions import merge
from actors.exchange.sink import Trace
from pilotfish.v1 import exchange_pb2 as pb

if TYPE_CHECKING:
    import torch

MAX_CLOSES = 8192
"""Closes a peer may leave unread; one that reads nothing for so long is given up."""

PING_S = 2.0
"""How often a quiet stream speaks, so that round trips and loads stay fresh."""


@dataclass(slots=True)
class _Open:
    session: OpenSession
    follow: bool
    trace: Trace


@dataclass(slots=True)
class _Bulk:
    """Rows to send once the drafter is known to have the Open: after the pong of that frame."""

    rows: list[torch.Tensor]
    from_row: int
    ping_ns: int | None = None


@dataclass(slots=True)
class Outgoing:
    """Both lanes' queues of one connection. `ended` is final: a new connection gets a new one.
    Features wait as they were tapped and leave in `form`."""

    form: FeatureForm = field(default_factory=FeatureForm)

    opens: dict[SessionKey, _Open] = field(default_factory=dict)
    commits: dict[SessionKey, list[Commit]] = field(default_factory=dict)
    closes: dict[SessionKey, str] = field(default_factory=dict)
    bulk: dict[SessionKey, _Bulk] = field(default_factory=dict)
    ponged_ns: int = 0
    pinged_ns: int = 0
    ended: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    rounds: Bell = field(default_factory=Bell)
    bulks: Bell = field(default_factory=Bell)

    # -- the engine's thread ----------------------------------------------------------------

    def open(self, session: OpenSession, *, follow: bool, trace: Trace) -> None:
        with self.lock:
            self.opens[session.key] = _Open(session, follow, trace)
        self.rounds.ring()

    def commit(self, commits: Iterable[Commit]) -> None:
        """All of a step's at once, so that they share a frame."""
        with self.lock:
            for commit in commits:
                # Out and in again keeps the order by the newest commit: coldest first.
                waiting = self.commits.pop(commit.key, [])
                waiting.append(commit)
                self.commits[commit.key] = waiting
        self.rounds.ring()

    def features(self, key: SessionKey, rows: torch.Tensor, from_row: int = 0) -> None:
        """Rows from_row … of a session whose Open said that they follow, in order."""
        with self.lock:
            waiting = self.bulk.get(key)
            if not rows.shape[0] or self.ended:
                pass
            elif waiting is not None and from_row:
                waiting.rows.append(rows)
            else:
                # An Open that has left already was followed by the newest ping, or by one before.
                sent = key not in self.opens
                self.bulk[key] = _Bulk([rows], from_row, self.pinged_ns if sent else None)
        self.bulks.ring()

    def close(self, key: SessionKey, reason: str) -> None:
        with self.lock:
            self.commits.pop(key, None)
            self.bulk.pop(key, None)
            if self.opens.pop(key, None) is None and not self.ended:
                self.closes[key] = reason
            given_up = len(self.closes) > MAX_CLOSES
        if given_up:
            self.end()
        self.rounds.ring()

    @property
    def feature_bytes(self) -> int:
        """Bytes of features that wait in both lanes."""
        with self.lock:
            return sum(_size(rows) for b in self.bulk.values() for rows in b.rows) + sum(
                _size(c.features) for waiting in self.commits.values() for c in waiting
            )

    def coldest(self) -> SessionKey | None:
        """Among the sessions whose features wait, the one with the oldest newest commit."""
        with self.lock:
            for key, waiting in self.commits.items():
                if key in self.bulk or any(c.features is not None for c in waiting):
                    return key
            return next(iter(self.bulk), None)

    # -- the sending threads ----------------------------------------------------------------

    def round_frames(self) -> Iterator[pb.VerifierFrame]:
        """Frames of the round lane until the end; a ping where one is due."""
        while not self.ended:
            if not self._round_due() and self.rounds.wait(PING_S):
                continue
            with self.lock:
                opens, self.opens = self.opens, {}
                commits, self.commits = self.commits, {}
                closes, self.closes = self.closes, {}
                ping_ns = self._ping(opens)
            merged = [self._formed(merge(waiting)) for waiting in commits.values()]
            yield from _with_ping(opens, merged, closes, ping_ns)

    def _formed(self, commit: Commit) -> Commit:
        if commit.features is None or self.form.plain:
            return commit
        return replace(commit, features=self.form(commit.features))

    def _round_due(self) -> bool:
        return bool(self.opens or self.commits or self.closes)

    def _ping(self, opens: dict[SessionKey, _Open]) -> int:
        """The ping of the next frame, 0 for none. Features wait for the pong of their Open's."""
        now_ns = time.monotonic_ns()
        if now_ns - self.pinged_ns < PING_S * 0.5e9 and not any(o.follow for o in opens.values()):
            return 0
        self.pinged_ns = now_ns
        for key in opens.keys() & self.bulk.keys():
            self.bulk[key].ping_ns = now_ns
        return now_ns

    def bulk_frames(self) -> Iterator[pb.VerifierFrame]:
        """Frames of the bulk lane until the end, session by session."""
        while not self.ended:
            with self.lock:
                key = self._released()
                bulk = self.bulk.pop(key) if key is not None else None
            if key is None or bulk is None:
                self.bulks.wait()
                continue
            start = bulk.from_row
            for rows in bulk.rows:
                yield from self._seed_frames(key, rows, start)
                start += rows.shape[0]

    def _seed_frames(
        self, key: SessionKey, rows: torch.Tensor, from_row: int
    ) -> Iterator[pb.VerifierFrame]:
        if self.form.plain:
            yield from feature_frames(key, rows, from_row)
            return
        for start in range(0, rows.shape[0], CHUNK_ROWS):
            formed = self.form(rows[start : start + CHUNK_ROWS])
            yield from feature_frames(key, formed, from_row + start)

    def _released(self) -> SessionKey | None:
        for key, item in self.bulk.items():
            if item.ping_ns is not None and item.ping_ns <= self.ponged_ns:
                return key
        return None

    def pong(self, ping_ns: int) -> int:
        """Nanoseconds of the round trip."""
        with self.lock:
            self.ponged_ns = max(self.ponged_ns, min(ping_ns, self.pinged_ns))
        self.bulks.ring()
        return time.monotonic_ns() - ping_ns

    def end(self) -> None:
        with self.lock:
            self.ended = True
            self.opens, self.commits, self.closes, self.bulk = {}, {}, {}, {}
        self.rounds.ring()
        self.bulks.ring()


def _with_ping(
    opens: dict[SessionKey, _Open],
    commits: Iterable[Commit],
    closes: dict[SessionKey, str],
    ping_ns: int,
) -> Iterator[pb.VerifierFrame]:
    """The ping goes with the last frame: its pong says that all of them were taken."""
    last = pb.VerifierFrame()
    frames = round_frames(
        (open_to_pb(o.session, features_follow=o.follow, trace=o.trace) for o in opens.values()),
        commits,
        (pb.Close(key=key_to_pb(key), reason=reason) for key, reason in closes.items()),
    )
    for number, frame in enumerate(frames):
        if number:
            yield last
        last = frame
    if ping_ns:
        last.ping_ns = ping_ns
    if ping_ns or last.ByteSize():
        yield last


def _size(rows: torch.Tensor | None) -> int:
    return 0 if rows is None else rows.numel() * rows.element_size()
