"""A drafter times itself before it serves: what a round takes, by sessions and depth.

The policy prices blocks by this grid from the first step on, and live blocks correct it
(`policies.estimate_draft`). The sessions are made up: random tokens, and random features where
the drafter reads any. Nothing depends on what is drafted, and drafters learn nothing from it.

Whoever starts a drafter waits for this, so it ends: one that is slow is not timed to the end, and
one that does not come back is refused.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING

from actors.contracts import MADE_UP, Commit, Drafter, DraftRequest, OpenSession, SessionKey
from actors.drafters.errors import DrafterStuck
from actors.sampling.params import SamplingParams

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

Timings = list[tuple[int, int, float]]
"""(sessions, depth, seconds of a round)"""

SESSIONS = (1, 8, 32)
BUDGET_S = 0.5
"""Once it cannot be expected to last, no more sessions are looked at."""
SLOW_S = 60.0
"""After so long no round is begun any more."""
STUCK_S = 180.0
"""After so long a drafter is taken not to come back: beyond what kernels take to be compiled."""
PROMPT = 16
COMMITTED = 2
"""Tokens of a commit: one that was drafted, and one of the target's own."""
ROUNDS = 2
"""Of each kind; the better one counts."""
WARMING = 8
"""Rounds after which a drafter that is still cold is taken as it is."""
ANY_VOCABULARY = 1000
GREEDY = SamplingParams(temperature=0.0, max_tokens=1 << 20, ignore_eos=True)


def timed(
    drafter: Drafter,
    depth: int,
    budget_s: float = BUDGET_S,
    *,
    clock: Callable[[], float] = time.perf_counter,
    slow_s: float = SLOW_S,
    stuck_s: float = STUCK_S,
) -> Timings:
    """Rounds of depth 1 and of the longest block, at most `depth`: one commit told for each
    session, one block drafted for each. Whatever the budget, one session's rounds are measured.

    A drafter that fails here serves with its rounds untimed, as it would have served with rounds
    that fail; one that is not through after `slow_s` serves with those that were timed by then.
    Raises DrafterStuck after `stuck_s`: it could not be asked for anything else, for it is still in
    a call.
    """
    done: Future[Timings] = Future()
    # A thread that nobody waits for: what hangs in it ends with the process.
    Thread(
        target=lambda: done.set_result(_timed(drafter, depth, budget_s, slow_s, clock)),
        name="drafter-timing",
        daemon=True,
    ).start()
    try:
        return done.result(stuck_s)
    except TimeoutError:
        raise DrafterStuck(
            f"{_name(drafter)} has not come back from its first rounds within "
            f"{stuck_s:g} s; it would hang in a request as well",
            "method",
        ) from None


def _timed(
    drafter: Drafter, depth: int, budget_s: float, slow_s: float, clock: Callable[[], float]
) -> Timings:
    """Never raises."""
    timings: Timings = []
    try:
        depths = sorted({1, min(depth, drafter.info.max_block or depth)}, reverse=True)
        began_s, took_s = clock(), 0.0
        for sessions in SESSIONS:
            started_s = clock()
            if timings and started_s - began_s + 2.0 * took_s > budget_s:
                break
            timings += _rounds(drafter, sessions, depths, clock, began_s + slow_s)
            took_s = clock() - started_s
    except _Slow:
        log.warning("%s is slow: rounds of %d sessions are not timed", _name(drafter), sessions)
    except Exception as error:
        log.warning("%s cannot be timed and serves all the same: %r", _name(drafter), error)
        return []
    return sorted(timings)


def _name(drafter: Drafter) -> str:
    return type(drafter).__name__


class _Slow(Exception):
    """There is no time for another round."""


def _rounds(
    drafter: Drafter,
    sessions: int,
    depths: Sequence[int],
    clock: Callable[[], float],
    until_s: float,
) -> Timings:
    """Of so many sessions, opened for this and closed whatever happens. Raises _Slow: at `until_s`
    there are still rounds to come."""
    made = MadeUp(drafter, sessions)
    longest = PROMPT + COMMITTED * ROUNDS * len(depths) + max(depths)
    if 0 < drafter.info.max_context < longest:
        return []
    try:
        drafter.open([made.opening(key) for key in made.keys])
        for _ in range(WARMING):
            if not any(p.cold for p in drafter.propose(made.requests(max(depths)))):
                break
            _in_time(clock, until_s)
        best = dict.fromkeys(depths, math.inf)
        for depth in (*depths,) * ROUNDS:
            _in_time(clock, until_s)
            best[depth] = min(best[depth], made.round(depth, clock))
        return [(sessions, depth, seconds) for depth, seconds in best.items()]
    finally:
        for key in made.keys:
            with suppress(Exception):  # the others are to be closed as well
                drafter.close(key)


def _in_time(clock: Callable[[], float], until_s: float) -> None:
    if clock() >= until_s:
        raise _Slow


@dataclass(slots=True)
class MadeUp:
    """Sessions of one length that nobody else has. length: of the text so far, at first of a
    prompt. width: of a row of features, 0 for none."""

    drafter: Drafter
    sessions: int
    length: int = PROMPT
    rounds: int = 0
    width: int = 0
    keys: list[SessionKey] = field(default_factory=list)
    draw: random.Random = field(default_factory=lambda: random.Random(0))

    def __post_init__(self) -> None:
        self.keys = [SessionKey(MADE_UP, f"{self.sessions}-{i}") for i in range(self.sessions)]
        if self.drafter.info.needs_features:
            self.width = getattr(self.drafter, "feature_dim", 0)
            if not self.width:
                raise ValueError("it reads features and does not say how wide they are")

    def opening(self, key: SessionKey) -> OpenSession:
        tokens, features = self._tokens(self.length), self._features(self.length - 1)
        return OpenSession(key, tokens, GREEDY, features=features)

    def requests(self, depth: int) -> list[DraftRequest]:
        return [DraftRequest(key, depth) for key in self.keys]

    def round(self, depth: int, clock: Callable[[], float]) -> float:
        """Seconds."""
        commits = [
            Commit(
                key,
                self.rounds,
                self.length,
                self._tokens(COMMITTED),
                self._features(COMMITTED),
                depth,
            )
            for key in self.keys
        ]
        requests = self.requests(depth)
        began_s = clock()
        self.drafter.observe(commits)
        self.drafter.propose(requests)
        took_s = clock() - began_s
        self.length += COMMITTED
        self.rounds += 1
        return max(took_s, 1e-9)  # a clock may be too coarse to see it

    def _tokens(self, count: int) -> tuple[int, ...]:
        vocabulary = self.drafter.info.vocab_size or ANY_VOCABULARY
        return tuple(self.draw.randrange(vocabulary) for _ in range(count))

    def _features(self, rows: int) -> torch.Tensor | None:
        if not self.width:
            return None
        import torch

        numbers = torch.Generator().manual_seed(self.draw.randrange(1 << 31))
        return torch.randn(rows, self.width, generator=numbers).bfloat16()
