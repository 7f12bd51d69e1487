"""Blocks for the next step: what has come, what is worth waiting for, why the rest goes without."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from actors.contracts import Draft, Gathered
from actors.exchange.bell import Bell
from actors.exchange.home import Home, PortSession
from actors.exchange.status import Reason
from policies import breaker as brk
from policies import waiting
from policies.choice import Arm


@dataclass(frozen=True, slots=True)
class Patience:
    """When silence counts as a miss. first_s: while a session's first block is still to come, for
    a drafter may have a long prompt to read. fixed_wait_s: instead of the waiting rule."""

    least_s: float = 0.25
    first_s: float = 2.0
    fixed_wait_s: float | None = None


@dataclass(slots=True)
class Gathering:
    """One call of `gather`. The caller holds `lock`, which is let go while waiting for `bell`.

    shadowed: how much evidence was asked of sessions, which leave it when theirs has come. arm:
    whose it is."""

    lock: threading.Lock
    bell: Bell
    clock: Callable[[], float]
    patience: Patience
    wanted: dict[str, int]
    worth_s: Mapping[str, float]
    sessions: dict[str, PortSession]
    vocab_size: int
    shadowed: dict[str, int] = field(default_factory=dict)
    arm: Arm | None = None
    drafts: dict[str, Draft] = field(default_factory=dict)
    missing: dict[str, Reason] = field(default_factory=dict)
    overtaken: dict[str, tuple[int, int]] = field(default_factory=dict)
    shadows: dict[str, tuple[Arm, Draft]] = field(default_factory=dict)
    judged: dict[str, tuple[Arm, int, int]] = field(default_factory=dict)
    open: dict[str, PortSession] = field(default_factory=dict)
    waited_s: float = 0.0

    def run(self) -> Gathered:
        for request_id in self.wanted:
            self.shadowed.pop(request_id, None)
            self._look(request_id)
        began = time.perf_counter()
        while self.open:
            pause_s = self._pause_s()
            if pause_s <= 0.0:
                break
            heard = self._wait(pause_s)
            self.waited_s = time.perf_counter() - began
            for request_id in list(self.open):
                self._look(request_id)
            if not heard:
                break
        for request_id in list(self.shadowed):
            self._shadow(request_id, self.sessions[request_id])
        self._give_up()
        return Gathered(
            self.drafts,
            dict(self.missing),
            self.waited_s,
            self.overtaken,
            self.shadows,
            self.judged,
        )

    def _wait(self, pause_s: float) -> bool:
        self.lock.release()
        try:
            return self.bell.wait(pause_s)
        finally:
            self.lock.acquire()

    def _look(self, request_id: str) -> None:
        """Settle this row, or leave it open: its block is still to come."""
        self.open.pop(request_id, None)
        session, depth = self.sessions.get(request_id), self.wanted[request_id]
        if session is None:
            self.missing[request_id] = "no-drafter"
            return
        if depth <= 0:
            self.missing[request_id] = "depth-0"
            return
        draft = session.take()
        if session.overtaken is not None:
            self.overtaken[request_id], session.overtaken = session.overtaken, None
        if draft is not None:
            self._use(request_id, session, draft, draft.tokens[:depth])
            return
        reason = _reason(session)
        if reason is None:
            self.open[request_id] = session
        else:
            self.missing[request_id] = reason

    def _shadow(self, request_id: str, session: PortSession) -> None:
        """Evidence: a block to be scored, or what is known of it already."""
        draft = session.take(verify=False)
        tokens = _inside(draft.tokens, self.vocab_size) if draft is not None else ()
        overtaken, session.overtaken = session.overtaken, None
        reason = _reason(session)
        if draft is not None or reason is not None:
            del self.shadowed[request_id]
        if self.arm is None:
            return
        if draft is not None and tokens:
            self.shadows[request_id] = self.arm, draft.cut(len(tokens))
        if overtaken is not None:
            self.judged[request_id] = self.arm, *overtaken
        elif draft is None and reason == "empty":
            self.judged[request_id] = self.arm, 0, 0

    def _use(
        self, request_id: str, session: PortSession, draft: Draft, wanted: tuple[int, ...]
    ) -> None:
        tokens = _inside(wanted, self.vocab_size)
        if len(tokens) < len(wanted) and session.home is not None:
            session.home.counts.faults["FAULT_INVALID"] += 1
        if tokens:
            self.drafts[request_id] = draft.cut(len(tokens))
        else:
            self.missing[request_id] = "fault"

    def _pause_s(self) -> float:
        """How long the open rows' blocks are worth waiting for, from now, while any drafter's are
        still likely to come."""
        if self.patience.fixed_wait_s is not None:
            return self.patience.fixed_wait_s - self.waited_s
        worth_s = math.fsum(self.worth_s.get(request_id, 0.0) for request_id in self.open)
        if worth_s <= self.waited_s:
            return 0.0
        now_s = self.clock()
        ages: dict[Home, float] = {}
        for session in self.open.values():
            if session.home is not None:
                age_s = session.age_s(now_s)
                ages[session.home] = min(age_s, ages.get(session.home, age_s))
        return max(
            (
                waiting.wait_s(worth_s, home.law, age_s=age_s, waited_s=self.waited_s)
                for home, age_s in ages.items()
            ),
            default=0.0,
        )

    def _give_up(self) -> None:
        """Rows still open run without; their drafters and sessions are judged by the clock."""
        now_s = self.clock()
        late: dict[Home, list[PortSession]] = {}
        for request_id, session in self.open.items():
            self.missing[request_id] = "late"
            if session.home is not None:
                session.home.counts.late += 1
        for session in (*self.open.values(), *(self.sessions[r] for r in self.shadowed)):
            if session.home is None:
                continue
            late.setdefault(session.home, []).append(session)
            patience_s = self._patience_s(session.home, first=session.answered < 0)
            session.silence = brk.unanswered(session.silence, now_s, patience_s)
        came = (*self.drafts, *self.shadows)
        served = {s.home for r in came if (s := self.sessions.get(r)) is not None}
        for home, rows in late.items():
            if home not in served:
                patience_s = self._patience_s(home, first=any(s.answered < 0 for s in rows))
                home.breaker = brk.miss(home.breaker, now_s, patience_s)

    def _patience_s(self, home: Home, *, first: bool) -> float:
        least_s = self.patience.first_s if first else self.patience.least_s
        return max(least_s, waiting.patience_s(home.law))


def _reason(session: PortSession) -> Reason | None:
    """Why this row has no tokens at hand; None when they may still come."""
    home = session.home
    if home is None:
        return session.reason
    if session.warming:
        return "cold"
    if home.max_context and len(session.view.tokens) >= home.max_context:
        return "context"
    if session.asked < 0:
        return "depth-0"
    if session.answered < session.asked:
        return None
    if session.stale:
        return "stale"
    return "cold" if session.cold else "empty"


def _inside(tokens: tuple[int, ...], vocab_size: int) -> tuple[int, ...]:
    """Up to the first id that is no token: the target must never be asked to embed it."""
    if not vocab_size:
        return tokens
    for place, token in enumerate(tokens):
        if token >= vocab_size:
            return tokens[:place]
    return tokens
