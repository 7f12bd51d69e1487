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
from typing import TYPE_CHECKING

from actors.contracts import Commit, Drafter, DraftRequest, OpenSession, Proposal, SessionKey
from actors.exchange.ahead import Ahead
from actors.exchange.bell import Bell
from actors.exchange.codec import block_to_pb, fault_to_pb
from actors.exchange.frames import drafter_frames
from actors.exchange.guard import Failures, GuardedDrafter
from actors.exchange.limits import MAX_BLOCK, MAX_LAW, Limits
from actors.exchange.sessions import Quarantine, Session, SessionTable
from actors.exchange.sink import Attributes, Sink, Span, Trace
from pilotfish.v1 import exchange_pb2 as pb

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

MAX_INBOX = 64
"""Frames that may wait; beyond it readers stop reading, and the verifier coalesces."""

_ROOM_S = 5.0  # a reader of a stream that was closed meanwhile looks again


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


@dataclass(frozen=True, slots=True)
class _Ask:
    """depth: what the drafter is asked for; 0 where its context is full."""

    session: Session
    round: int
    depth: int


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
        self._drafter = GuardedDrafter(drafter, limits.vocab_size, MAX_LAW)
        self.info = self._drafter.info
        self._limits = limits
        self._table = SessionTable(self.info, limits)
        self._ahead = Ahead(self.info.max_ahead)
        self._idle_s = idle_s
        self._traced = traced
        self._clock = clock
        self._swept_s = clock()
        self._inbox: deque[Batch] = deque()
        self._bell = Bell()
        self._room = threading.Condition()
        self._stopping = False
        self._faults: list[tuple[Sink, pb.Fault]] = []
        self._thread = threading.Thread(target=self._run, name="draft-worker", daemon=True)
        self._began_s: float | None = None
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

    def alive(self, within_s: float) -> bool:
        """Whether the thread runs and has not been in one batch for longer than that; before
        `start` and after `stop` it does not run."""
        began_s = self._began_s
        held_s = 0.0 if began_s is None else time.monotonic() - began_s
        return self._thread.is_alive() and held_s <= within_s

    def submit(self, batch: Batch) -> None:
        """From a stream's reader thread. Blocks while the inbox is full. A batch of a
        closed stream never blocks: it is how the end of the stream is told."""
        if len(self._inbox) >= MAX_INBOX:
            with self._room:
                self._room.wait_for(lambda: self._may_submit(batch), _ROOM_S)
        self._inbox.append(batch)
        self._bell.ring()

    def _may_submit(self, batch: Batch) -> bool:
        return len(self._inbox) < MAX_INBOX or batch.stream.closed or self._stopping

    def stop(self, timeout_s: float = 5.0) -> bool:
        """Close every session and end the thread. False when the drafter does not come back."""
        self._stopping = True
        self._bell.ring()
        self._make_room()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # -- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        while (batches := self._drain()) is not None:
            began = time.perf_counter_ns()
            self._began_s = time.monotonic()
            try:
                for batch in batches:
                    self._take(batch)
                self._advance()
                if not self._inbox:
                    self._go_on()
                self._sweep()
            except Exception:
                log.exception("the draft worker failed; all its sessions are closed")
                self._quarantine_all()
            self._began_s = None
            self.busy_ns += time.perf_counter_ns() - began
        for session in self._table.all():
            self._remove(session)

    def _drain(self) -> list[Batch] | None:
        pause_s = self._idle_s / 4 if len(self._table) else None
        while not self._inbox and not self._stopping and self._bell.wait(pause_s):
            pass
        if self._stopping:
            return None
        batches = [self._inbox.popleft() for _ in range(len(self._inbox))]
        if len(batches) >= MAX_INBOX:
            self._make_room()
        return batches

    def _make_room(self) -> None:
        with self._room:
            self._room.notify_all()

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
            self._ahead.overtaken(commit.key)
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
        opens = [s.opened() for s in sessions if s.opening is not None]
        sessions = self._without(self._drafter.open(opens), sessions)
        told = [(s, c) for s in sessions if (c := s.merged()) is not None]
        failures = self._drafter.observe([c for _, c in told])
        self._without(failures, [s for s, _ in told])
        asks = [
            _Ask(s, c.round, self._depth(s, c.depth))
            for s, c in told
            if c.depth > 0 and c.key not in failures
        ]
        self._propose(asks)
        self._flush_faults()

    def _propose(self, asks: Sequence[_Ask]) -> None:
        drafting = [ask for ask in asks if ask.depth > 0]
        requests = [DraftRequest(ask.session.key, ask.depth) for ask in drafting]
        began, start_ns = time.perf_counter_ns(), time.time_ns()
        answers = self._drafter.propose(requests, [ask.session.length for ask in drafting])
        draft_us = (time.perf_counter_ns() - began) // 1000
        blocks: dict[Sink, list[pb.Block]] = defaultdict(list)
        spans: dict[Sink, list[Span]] = defaultdict(list)
        for ask, answer in zip(drafting, answers, strict=True):
            session = ask.session
            if isinstance(answer, str):
                self._lose(session, answer)
                continue
            self._ahead.answered(session.key, ask.round, ask.depth, len(answer.tokens))
            queue_us = max(0, began - session.asked_ns) // 1000
            blocks[session.stream].append(block_to_pb(answer, ask.round, draft_us, queue_us))
            if self._traced and session.trace[0]:
                attributes = self._attributes(ask, answer, len(requests))
                end_ns = start_ns + draft_us * 1000
                spans[session.stream].append(Span(session.trace, start_ns, end_ns, attributes))
        for ask in asks:
            if ask.depth <= 0:  # past the drafter's context: said, so that nobody waits
                nothing = Proposal(ask.session.key, ask.session.length, ())
                blocks[ask.session.stream].append(block_to_pb(nothing, ask.round, 0, 0))
        for stream, answered in blocks.items():
            self.blocks += len(answered)
            for frame in drafter_frames(answered, self._faults_of(stream)):
                stream.put(frame, spans.pop(stream, ()))

    def _go_on(self) -> None:
        """Nobody is waiting: take blocks that went out further, and send the longer chains."""
        taken = [
            (session, block.round, length)
            for key, block, length in self._ahead.take()
            if (session := self._table.find(key)) is not None and session.opening is None
        ]
        requests = [DraftRequest(session.key, length) for session, _, length in taken]
        began = time.perf_counter_ns()
        answers = self._drafter.propose(requests, [session.length for session, _, _ in taken])
        draft_us = (time.perf_counter_ns() - began) // 1000
        chains: dict[Sink, list[pb.Block]] = defaultdict(list)
        for (session, round, _), answer in zip(taken, answers, strict=True):
            if isinstance(answer, str):
                self._lose(session, answer)
            elif answer.tokens:
                chains[session.stream].append(block_to_pb(answer, round, draft_us, 0))
        for stream, blocks in chains.items():
            for frame in drafter_frames(blocks, self._faults_of(stream)):
                stream.put(frame)
        self._flush_faults()

    def _attributes(self, ask: _Ask, proposal: Proposal, sessions: int) -> Attributes:
        return {
            "pilotfish.draft.mechanism": self.info.mechanism,
            "pilotfish.draft.depth": ask.depth,
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

    def _without(self, failures: Failures, sessions: Sequence[Session]) -> Sequence[Session]:
        """The sessions that did not fail; those that did are out."""
        if not failures:
            return sessions
        for session in sessions:
            if session.key in failures:
                self._lose(session, failures[session.key])
        return [s for s in sessions if s.key not in failures]

    def _lose(self, session: Session, detail: str) -> None:
        """The drafter failed on it; the guard has closed it there."""
        self._table.remove(session)
        self._fault(session.stream, session.key, pb.FAULT_INTERNAL, detail)

    def _close(self, key: SessionKey) -> None:
        session = self._table.find(key)
        if session is not None:
            self._remove(session)

    def _remove(self, session: Session) -> None:
        self._ahead.overtaken(session.key)
        if self._table.remove(session):
            self._drafter.close(session.key)

    def _faults_of(self, stream: Sink) -> list[pb.Fault]:
        if not self._faults:
            return []
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
