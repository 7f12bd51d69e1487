"""One verifier's streams as the drafter sees them: frames in, decoded; frames out, in order.

Decoding runs on the reader's thread, off the worker's. A message that cannot be decoded faults its
session and nothing else.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from actors.contracts import SessionKey
from actors.exchange.bell import Bell
from actors.exchange.codec import (
    commit_from_pb,
    fault_to_pb,
    key_from_pb,
    open_from_pb,
    tensor_from_pb,
)
from actors.exchange.limits import MAX_DETAIL, Limits
from actors.exchange.sink import Span, Trace
from actors.exchange.wire_error import WireError
from actors.exchange.worker import Batch, DraftWorker
from pilotfish.v1 import exchange_pb2 as pb

MAX_OUTBOX = 64
"""Frames a verifier may leave unread; older ones go first, for they are stale first."""

Answer = tuple[pb.DrafterFrame, Sequence[Span]]


class RoundStream:
    """The round lane of one verifier process: a sink for answers and the owner of its sessions."""

    def __init__(self, verifier: str, boot_epoch: int, worker: DraftWorker, limits: Limits) -> None:
        self.verifier = verifier
        self.boot_epoch = boot_epoch
        self._worker = worker
        self._limits = limits
        self._outbox: deque[Answer] = deque(maxlen=MAX_OUTBOX)
        self._bell = Bell()
        self._lock = threading.Lock()
        self._closed = False
        self._on_close: list[Callable[[], object]] = []
        self._load = (time.perf_counter_ns(), worker.busy_ns)

    # -- answers ----------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._closed

    def put(self, frame: pb.DrafterFrame, spans: Sequence[Span] = ()) -> None:
        self._outbox.append((frame, spans))
        self._bell.ring()

    def frames(self) -> Iterator[Answer]:
        """Answers to send, until the stream ends."""
        while not self._closed:
            if self._outbox:
                yield self._outbox.popleft()
            else:
                self._bell.wait()

    def close(self) -> None:
        """Idempotent. Every session of the stream is given back."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._bell.ring()
        self._worker.submit(Batch(self))
        for callback in self._on_close:
            callback()

    def attach(self, end: Callable[[], object]) -> bool:
        """Call `end` when the stream closes; False when it has."""
        with self._lock:
            if not self._closed:
                self._on_close.append(end)
            return not self._closed

    # -- frames -----------------------------------------------------------------------------

    def read(self, frames: Iterable[pb.VerifierFrame]) -> None:
        """The reader's loop; ends with the stream."""
        try:
            for frame in frames:
                if self._closed:
                    break
                self.take(frame)
        except Exception:
            # grpc raises a bare Exception from the request iterator when a stream breaks.
            pass
        finally:
            self.close()

    def take(self, frame: pb.VerifierFrame) -> None:
        """Decode one round frame and hand it to the worker; the pong says that this has been done,
        so what comes later on another lane finds it."""
        batch = Batch(self)
        if self._worker.full and frame.opens:
            self._refuse(frame.opens, batch)
        else:
            for opening in frame.opens:
                self._decode(opening.key, batch, partial(self._open, opening, batch))
        for commit in frame.commits:
            self._decode(commit.key, batch, partial(self._commit, commit, batch))
        for close in frame.closes:
            self._decode(close.key, batch, batch.closes.append)
        self._worker.submit(batch)
        if frame.ping_ns:
            self.put(pb.DrafterFrame(pong_ns=frame.ping_ns, load=self._describe_load()))

    def take_features(self, frame: pb.VerifierFrame) -> None:
        """One bulk frame."""
        batch = Batch(self)
        for part in frame.features:
            self._decode(part.key, batch, partial(self._features, part, batch))
        self._worker.submit(batch)

    def _open(self, message: pb.Open, batch: Batch, key: SessionKey) -> None:
        parent, state = message.trace.traceparent, message.trace.tracestate
        trace: Trace = ("", "")
        if len(parent) <= MAX_DETAIL:
            trace = (parent, state if len(state) <= MAX_DETAIL else "")
        opening = open_from_pb(message, key, self._limits)
        batch.opens.append((opening, message.features_follow, trace))

    def _commit(self, message: pb.Commit, batch: Batch, key: SessionKey) -> None:
        batch.commits.append(commit_from_pb(message, key, self._limits))

    def _features(self, message: pb.Features, batch: Batch, key: SessionKey) -> None:
        rows = tensor_from_pb(
            message.rows, max_rows=self._limits.max_tokens, max_columns=self._limits.max_columns
        )
        batch.features.append((key, message.from_row, rows))

    def _decode(
        self, key: pb.SessionKey, batch: Batch, use: Callable[[SessionKey], object]
    ) -> None:
        try:
            use(key_from_pb(key, self.verifier))
        except WireError as error:
            self._worker.faults["FAULT_INVALID"] += 1
            batch.bad.append(SessionKey(self.verifier, key.request, key.epoch))
            fault = pb.Fault(key=key, code=pb.FAULT_INVALID, detail=str(error)[:MAX_DETAIL])
            self.put(pb.DrafterFrame(faults=[fault]))

    def _refuse(self, opens: Iterable[pb.Open], batch: Batch) -> None:
        """No room: said at once, not when the worker comes to it."""
        detail = f"{self._limits.max_sessions} sessions are open"
        frame = pb.DrafterFrame()
        for opening in opens:
            self._worker.faults["FAULT_OVERLOADED"] += 1
            key = SessionKey(self.verifier, opening.key.request, opening.key.epoch)
            frame.faults.append(fault_to_pb(key, pb.FAULT_OVERLOADED, detail))
        self.put(frame)

    def _describe_load(self) -> pb.DrafterLoad:
        """Sessions now, and the worker's busy share since the last answer to a ping."""
        now_ns, busy_ns = time.perf_counter_ns(), self._worker.busy_ns
        since_ns, before_ns = self._load
        self._load = (now_ns, busy_ns)
        share = (busy_ns - before_ns) / max(1, now_ns - since_ns)
        return pb.DrafterLoad(sessions=self._worker.sessions, busy_share=min(1.0, share))
