"""One thread owns the drafter and batches over all sessions of all streams.

It drains what has come, tells the drafter in one call each (open, observe, propose) and answers
one frame a stream. Sessions that run go before sessions that open, so that a long prefill does not
stand before a round.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from actors.contracts import Commit, Drafter, DraftRequest, OpenSession, Proposal, SessionKey
from actors.exchange.codec import block_to_pb, fault_to_pb
from actors.exchange.frames import drafter_frames
from actors.exchange.guard import Failures, GuardedDrafter
from actors.exchange.limits import MAX_BLOCK, Limits
from actors.exchange.sessions import Quarantine, Session, SessionTable
from actors.exchange.sink import Attributes, Sink, Span, Trace
from pilotfish.v1 import exchange_pb2 as pb

log = logging.getLogger(__name__)

MAX_INBOX = 64
"""Frames that may wait; beyond it readers stop reading, and the verifier coalesces."""


@dataclass(slots=True)
class Batch:
    """What one frame said, decoded. bad: sessions whose message could not be taken."""

    stream: Sink
    opens: list[tuple[OpenSession, bool, Trace]] = field(default_factory=list)
    features: list[tuple[SessionKey, int, torch.Tensor]] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    closes: list[SessionKey] = field(default_factory=list)
    bad: list[SessionKey] = field(default_factory=list)
    received_ns: int = field(default_factory=time.perf_counter_ns)


class DraftWorker:
    """`clock` gives monotonic seconds; idle_s: how long a session may be silent."""

    def __init__(
        self,
        drafter: Drafter,
        limits: Limits,
        *,
        idle_s: float = 60.0,
        traced: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._drafter = GuardedDrafter(drafter, limits.vocab_size)
        self.info = self._drafter.info
        self._limits = limits
        self._table = SessionTable(self.info, limits)
        self._idle_s = idle_s
        self._traced = traced
        self._clock = clock
        self._swept_s = clock()
        self._inbox: deque[Batch] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._faults: list[tuple[Sink, pb.Fault]] = []
        self._thread = threading.Thread(target=self._run, name="draft-worker", daemon=True)
        self.busy_ns = 0
        self.blocks = 0
        self.faults: dict[str, int] = defaultdict(int)

    @property
    def sessions(self) -> int:
        return len(self._table)

    @property
    def full(self) -> bool:
        return len(self._table) >= self._limits.max_sessions

    def start(self) -> None:
        self._thread.start()

    def submit(self, batch: Batch) -> None:
        """From a stream's reader thread. Blocks while the inbox is full. A batch of a
        closed stream never blocks: it is how the end of the stream is told."""
        with self._wake:
            while len(self._inbox) >= MAX_INBOX and not batch.stream.closed and not self._stopping:
                self._wake.wait()
            if not self._stopping:
                self._inbox.append(batch)
                self._wake.notify_all()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Close every session and end the thread. False when the drafter does not come back."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # -- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        while (batches := self._drain()) is not None:
            began = time.perf_counter_ns()
            try:
                for batch in batches:
                    self._take(batch)
                self._advance()
                self._sweep()
            except Exception:
                log.exception("the draft worker failed; all its sessions are closed")
                self._quarantine_all()
            self.busy_ns += time.perf_counter_ns() - began
        for session in self._table.all():
            self._remove(session)

    def _drain(self) -> list[Batch] | None:
        with self._wake:
            pause_s = self._idle_s / 4 if len(self._table) else None
            while not self._inbox and not self._stopping:
                if not self._wake.wait(pause_s):
                    break
            if self._stopping:
                return None
            batches = list(self._inbox)
            self._inbox.clear()
            self._wake.notify_all()
            return batches

    def _take(self, batch: Batch) -> None:
        now_s, stream = self._clock(), batch.stream
        if stream.closed:
            for session in self._table.of_stream(stream):
                self._remove(session)
            return
        for key in batch.bad:
            self._close(key)
        for opening, follow, trace in batch.opens:
            with self._quarantining(stream, opening.key):
                old = self._table.take_open(
                    opening, follow=follow, stream=stream, trace=trace, now_s=now_s
                )
                if old is not None and old.opening is None:
                    self._drafter.close(old.key)
        for key, from_row, rows in batch.features:
            with self._quarantining(stream, key):
                self._table.take_features(key, from_row, rows, now_s)
        for commit in batch.commits:
            with self._quarantining(stream, commit.key):
                self._table.take_commit(commit, now_s=now_s, asked_ns=batch.received_ns)
        for key in batch.closes:
            self._close(key)

    def _advance(self) -> None:
        ready = self._table.ready()
        running = [s for s in ready if s.opening is None]
        opening = [s for s in ready if s.opening is not None]
        self._round(running)
        self._round(opening)

    def _round(self, sessions: Sequence[Session]) -> None:
        """Open, observe and propose for these sessions, and answer their streams."""
        by_key = {s.key: s for s in sessions}
        opens = [s.opened() for s in sessions if s.opening is not None]
        self._out(self._drafter.open(opens), by_key)
        commits = [c for s in by_key.values() if (c := s.merged()) is not None]
        self._out(self._drafter.observe(commits), by_key)
        asked = [c for c in commits if c.depth > 0 and c.key in by_key]
        self._propose(asked, by_key)
        self._flush_faults()

    def _propose(self, asked: Sequence[Commit], by_key: dict[SessionKey, Session]) -> None:
        wanted = {c.key: self._depth(by_key[c.key], c.depth) for c in asked}
        requests = [DraftRequest(key, depth) for key, depth in wanted.items() if depth > 0]
        lengths = {key: by_key[key].length for key in wanted}
        began, start_ns = time.perf_counter_ns(), time.time_ns()
        proposals, failures = self._drafter.propose(requests, lengths)
        draft_us = (time.perf_counter_ns() - began) // 1000
        self._out(failures, by_key)
        blocks: dict[Sink, list[pb.Block]] = defaultdict(list)
        spans: dict[Sink, list[Span]] = defaultdict(list)
        for commit in asked:
            session = by_key.get(commit.key)
            if session is None:
                continue
            nothing = Proposal(commit.key, session.length, ())
            proposal = proposals.get(commit.key, nothing)
            queue_us = max(0, began - session.asked_ns) // 1000
            blocks[session.stream].append(
                block_to_pb(proposal, round=commit.round, draft_us=draft_us, queue_us=queue_us)
            )
            if self._traced and session.trace[0]:
                attributes = self._attributes(wanted[commit.key], proposal, len(requests))
                end_ns = start_ns + draft_us * 1000
                spans[session.stream].append(Span(session.trace, start_ns, end_ns, attributes))
        for stream, answers in blocks.items():
            self.blocks += len(answers)
            for frame in drafter_frames(answers, self._faults_of(stream)):
                stream.put(frame, spans.pop(stream, ()))

    def _attributes(self, depth: int, proposal: Proposal, sessions: int) -> Attributes:
        return {
            "pilotfish.draft.mechanism": self.info.mechanism,
            "pilotfish.draft.depth": depth,
            "pilotfish.draft.tokens": len(proposal.tokens),
            "pilotfish.draft.sessions": sessions,
        }

    def _depth(self, session: Session, wanted: int) -> int:
        """Within the drafter's block and context; positions past the context do not exist."""
        depth = min(wanted, self.info.max_block or wanted, MAX_BLOCK)
        if self.info.max_context:
            depth = min(depth, self.info.max_context - session.length)
        return depth

    # -- faults and ends --------------------------------------------------------------------

    def _fault(self, stream: Sink, key: SessionKey, code: pb.FaultCode, detail: str) -> None:
        """Count it and answer it with the stream's next frame. On the worker's thread."""
        self.faults[pb.FaultCode.Name(code)] += 1
        self._faults.append((stream, fault_to_pb(key, code, detail)))

    @contextmanager
    def _quarantining(self, stream: Sink, key: SessionKey) -> Iterator[None]:
        """A message that cannot be taken ends its session, and nothing else."""
        try:
            yield
        except Quarantine as error:
            self._close(key)
            self._fault(stream, key, error.code, str(error))

    def _out(self, failures: Failures, by_key: dict[SessionKey, Session]) -> None:
        """The drafter failed on these; the guard has closed them there."""
        for key, detail in failures.items():
            session = by_key.pop(key, None)
            if session is not None:
                self._table.remove(session)
                self._fault(session.stream, key, pb.FAULT_INTERNAL, detail)

    def _close(self, key: SessionKey) -> None:
        session = self._table.find(key)
        if session is not None:
            self._remove(session)

    def _remove(self, session: Session) -> None:
        if self._table.remove(session):
            self._drafter.close(session.key)

    def _faults_of(self, stream: Sink) -> list[pb.Fault]:
        mine = [fault for sink, fault in self._faults if sink is stream]
        self._faults = [item for item in self._faults if item[0] is not stream]
        return mine

    def _flush_faults(self) -> None:
        for stream in {id(s): s for s, _ in self._faults}.values():
            for frame in drafter_frames((), self._faults_of(stream)):
                stream.put(frame)

    def _sweep(self) -> None:
        """Sessions nobody has spoken of for long are given back."""
        now_s = self._clock()
        if now_s - self._swept_s < self._idle_s / 4:
            return
        self._swept_s = now_s
        for session in self._table.idle(now_s - self._idle_s):
            self._remove(session)
            self._fault(
                session.stream,
                session.key,
                pb.FAULT_EVICTED,
                f"idle for {self._idle_s:g} s",
            )
        self._flush_faults()

    def _quarantine_all(self) -> None:
        for session in self._table.all():
            self._remove(session)
            self._fault(session.stream, session.key, pb.FAULT_INTERNAL, "the worker failed")
        self._flush_faults()
