"""The port of a co-located drafter: the same contract, the same containment, no wire."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors.contracts import (
    Commit,
    Draft,
    Drafter,
    DraftRequest,
    Gathered,
    OpenSession,
    PortCommit,
    Proposal,
    SessionKey,
    SessionView,
)
from actors.exchange.contain import contained, contained_gather
from actors.exchange.guard import Failures, GuardedDrafter
from actors.exchange.limits import MAX_BLOCK
from actors.exchange.status import BlockCounts, LinkRecord, Reason
from policies import breaker as brk
from policies.choice import Arm
from policies.retry import pause_s

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class _Session:
    """key is None while the drafter does not have it. asked: tokens, with the newest commit."""

    view: SessionView
    key: SessionKey | None = None
    length: int = 0
    asked: int = 0
    reason: Reason = "cold"
    failures: int = 0
    retry_s: float = 0.0


class LocalPort:
    """Implements `actors.contracts.DraftPort` around a drafter in the same thread.

    vocab_size: the target's; 0 takes the drafter's own. timings, read_s: what the drafter has
    measured of itself, see `Arm`. A drafter that hangs cannot be contained here: that takes a
    process of its own.
    """

    def __init__(
        self,
        drafter: Drafter,
        *,
        name: str = "local",
        vocab_size: int = 0,
        timings: Sequence[tuple[int, int, float]] = (),
        read_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._guard = GuardedDrafter(drafter, vocab_size)
        self._info = drafter.info
        self._name = name
        self._clock = clock
        self._sessions: dict[str, _Session] = {}
        self._epoch = 0
        self._breaker = brk.Breaker()
        self._counts = BlockCounts()
        most = self._info.max_block or MAX_BLOCK
        self._arm = Arm(self._info.mechanism, False, most, tuple(timings), read_s)
        self._shadows: dict[str, int] = {}  # asked for as evidence with the newest commits
        self.missing: Counter[str] = Counter()

    @property
    def taps(self) -> tuple[int, ...]:
        return self._info.taps if self._info.needs_features else ()

    @property
    def arms(self) -> tuple[Arm, ...]:
        resting = brk.admission(self._breaker, self._clock()) == "none"
        return () if resting else (self._arm,)

    @property
    def mechanism(self) -> str:
        return self._info.mechanism

    @property
    def token_bytes(self) -> int:
        """What the drafter keeps on its device for each token of a request."""
        return self._info.token_bytes

    @contained
    def open(self, view: SessionView) -> None:
        self.close(view.request_id, "opened again")
        session = self._sessions[view.request_id] = _Session(view)
        if not self._info.needs_features:
            self._open([(session, len(view.tokens))])

    def prefilled(self, request_id: str, rows: int) -> None:
        """A drafter in this thread takes its prompt as a whole, and absorbs it in parts."""

    @contained
    def commit(self, commits: Sequence[PortCommit]) -> None:
        known = [(c, s) for c in commits if (s := self._sessions.get(c.request_id)) is not None]
        for commit, session in known:
            if session.length != commit.from_len:
                self._drop(session, "cold")
        self._open([(s, c.from_len) for c, s in known if s.key is None])
        observed = []
        for commit, session in known:
            if session.key is None:
                continue
            features = session.view.features(*commit.rows) if self._info.needs_features else None
            if self._info.needs_features and features is None:
                self._drop(session, "cold")
                continue
            if commit.evidence:
                self._shadows[commit.request_id] = commit.evidence
            observed.append(_commit(commit, session.key, features))
            session.length += len(commit.tokens)
            session.asked = commit.depth
        self._settle(self._guard.observe(observed))

    @contained_gather
    def gather(self, wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
        """Nothing is ever waited for: what there is to draft is drafted here and now. Shadows come
        last, so that others' blocks are not said to have taken longer for them."""
        if not wanted and not self._shadows:
            return Gathered()
        began = time.perf_counter()
        drafts, missing = self._draft({r: self._asked(r, depth) for r, depth in wanted.items()})
        self._counts.used += len(drafts)
        self.missing.update(missing.values())
        evidence, nothing = self._draft({r: d for r, d in self._shadows.items() if r not in wanted})
        self._shadows = {}
        return Gathered(
            drafts,
            missing,
            time.perf_counter() - began,
            shadows={r: (self._arm, draft) for r, draft in evidence.items()},
            judged={r: (self._arm, 0, 0) for r, reason in nothing.items() if reason == "empty"},
        )

    @contained
    def close(self, request_id: str, reason: str) -> None:
        self._shadows.pop(request_id, None)
        session = self._sessions.pop(request_id, None)
        if session is not None and session.key is not None:
            self._guard.close(session.key)

    @contained
    def shutdown(self) -> None:
        for request_id in list(self._sessions):
            self.close(request_id, "shutdown")

    def status(self) -> list[LinkRecord]:
        closed = self._breaker.closed
        return [
            LinkRecord(
                drafter=self._name,
                address="",
                mechanism=self._info.mechanism,
                up=closed,
                state="up" if closed else "isolated",
                pid=os.getpid(),
                sessions=sum(s.key is not None for s in self._sessions.values()),
                blocks_used=self._counts.used,
                blocks_answered=self._counts.answered,
                draft_s=self._counts.draft_s,
                block_s=self._counts.block_s,
                faults=dict(self._counts.faults),
            )
        ]

    # -- inside -----------------------------------------------------------------------------

    def _draft(self, wanted: Mapping[str, int]) -> tuple[dict[str, Draft], dict[str, str]]:
        """Blocks by request, and why the others have none."""
        drafts: dict[str, Draft] = {}
        missing: dict[str, str] = {}
        if not wanted:
            return drafts, missing
        began = time.perf_counter()
        requests: dict[SessionKey, str] = {}
        depths: list[DraftRequest] = []
        lengths: list[int] = []
        for request_id, depth in wanted.items():
            session = self._sessions.get(request_id)
            reason = self._reason(session, depth)
            if reason or session is None or session.key is None:
                missing[request_id] = reason or "no-drafter"
                continue
            requests[session.key] = request_id
            lengths.append(session.length)
            depths.append(DraftRequest(session.key, self._depth(session, depth)))
        answers = self._guard.propose(depths, lengths)
        draft_us = int((time.perf_counter() - began) * 1e6)
        failures: Failures = {}
        for (key, request_id), answer in zip(requests.items(), answers, strict=True):
            if not isinstance(answer, str) and self._lawless(answer, request_id):
                self._guard.close(key)
                answer = "a block without its law"
            if isinstance(answer, str):
                failures[key] = answer
                missing[request_id] = "fault"
                continue
            self._sessions[request_id].failures = 0
            if answer.tokens:
                drafts[request_id] = Draft(
                    answer.tokens,
                    self._info.mechanism,
                    False,
                    draft_us,
                    law=answer.law,
                    confidence=answer.confidence or (),
                )
                self._counts.came(draft_us / 1e6, draft_us / 1e6)
            else:
                missing[request_id] = "cold" if answer.cold else "empty"
        if len(failures) < len(requests):
            self._breaker = brk.answer(self._breaker, self._clock())
        self._settle(failures)
        return drafts, missing

    def _open(self, sessions: Sequence[tuple[_Session, int]]) -> None:
        """Open these on the drafter with their first tokens, so many of each, where it may be."""
        opens: list[OpenSession] = []
        for session, length in sessions:
            opening = self._opening(session, length, probing=bool(opens))
            if opening is not None:
                session.key, session.length = opening.key, length
                opens.append(opening)
        self._settle(self._guard.open(opens))

    def _opening(self, session: _Session, length: int, *, probing: bool) -> OpenSession | None:
        now_s, view = self._clock(), session.view
        admission = brk.admission(self._breaker, now_s)
        busy = probing or any(s.key is not None for s in self._sessions.values())
        if admission == "none" or (admission == "one" and busy):
            session.reason = "isolated"
            return None
        if now_s < session.retry_s:
            return None
        features = view.features(0, length - 1) if self._info.needs_features else None
        if self._info.needs_features and features is None:
            session.reason = "cold"
            return None
        self._epoch += 1
        key = SessionKey(self._name, view.request_id, self._epoch)
        tokens = tuple(view.tokens[:length])
        prompt_len = min(view.prompt_len, length)
        return OpenSession(key, tokens, view.sampling, view.tenant, features, prompt_len)

    def _reason(self, session: _Session | None, depth: int) -> Reason | None:
        if session is None:
            return "no-drafter"
        if depth <= 0:
            return "depth-0"
        if session.key is None:
            return session.reason
        return "context" if self._depth(session, depth) <= 0 else None

    def _asked(self, request_id: str, depth: int) -> int:
        """What was asked for, where that is less than what may be used: a token more may take a
        forward more."""
        session = self._sessions.get(request_id)
        return min(depth, session.asked) if session is not None and session.asked else depth

    def _depth(self, session: _Session, depth: int) -> int:
        depth = min(depth, self._info.max_block or depth)
        if self._info.max_context:
            depth = min(depth, self._info.max_context - session.length)
        return depth

    def _lawless(self, answer: Proposal, request_id: str) -> bool:
        """A drafter that gives laws drew this from one, and does not say which."""
        if not self._info.gives_law or answer.law is not None:
            return False
        return bool(answer.tokens) and not self._sessions[request_id].view.sampling.greedy

    def _drop(self, session: _Session, reason: Reason) -> None:
        if session.key is not None:
            self._guard.close(session.key)
        session.key, session.reason, session.length = None, reason, 0

    def _settle(self, failures: Failures) -> None:
        """Failed sessions rest for a while; a call of nothing but failures counts against the
        drafter itself."""
        if not failures:
            return
        now_s = self._clock()
        for key in failures:
            session = self._sessions.get(key.request)
            if session is None or session.key != key:
                continue
            session.key, session.reason, session.length = None, "fault", 0
            session.failures += 1
            session.retry_s = now_s + pause_s(session.failures)
            self._counts.faults["FAULT_INTERNAL"] += 1
        self._breaker = brk.fail(self._breaker, now_s)
        if brk.admission(self._breaker, now_s) == "none":
            for session in self._sessions.values():
                if session.key is not None:
                    self._drop(session, "isolated")


def _commit(commit: PortCommit, key: SessionKey, features: torch.Tensor | None) -> Commit:
    depth = commit.depth or commit.evidence
    return Commit(key, commit.round, commit.from_len, commit.tokens, features, depth)
