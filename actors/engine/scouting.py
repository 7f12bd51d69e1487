"""Whose blocks are drafted for evidence alone, and what that really took.

A drafter reads a request's whole text before it drafts for it the first time, which may take it
longer than a hundred blocks. So evidence is asked of requests that it knows already, and at most of
one other, the shortest, where the account of exploring bears what reading it is expected to take.
Its drafter has measured that before it served; so the first prompt of all waits as well, until the
account bears it or a shorter one has come.
What the engine's thread spent beyond the price that was expected is told, so that the account is
kept in real seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq

from actors.contracts import Gathered
from actors.engine.sequence import Sequence
from policies.choice import Arm
from policies.choice_records import Shadow

SMOOTH = 0.05


class Scouting:
    """One engine's. usual_s: what telling and asking drafters takes of a step, on average."""

    def __init__(self) -> None:
        self.usual_s = 0.0
        self._known: dict[Arm, set[str]] = {}
        self._read_s: dict[Arm, float] = {}  # of a token, by arm
        self._reading = 0  # tokens, for the shadow of this step
        self._turn = 0

    @property
    def reads(self) -> bool:
        """Whether a text is read for the shadow of this step."""
        return self._reading > 0

    def knows(self, arm: Arm, request_id: str) -> None:
        """The arm was asked for a block of this request."""
        self._known.setdefault(arm, set()).add(request_id)

    def forget(self, request_id: str) -> None:
        for known in self._known.values():
            known.discard(request_id)

    def choose(
        self, able: Seq[Sequence], shadow: Shadow, affords: Callable[[float], bool]
    ) -> list[Sequence]:
        """Of the requests that may be drafted for; those it knows take turns. affords: whether so
        many seconds more may be spent on exploring."""
        arm, known = shadow.arm, self._known.setdefault(shadow.arm, set())
        chosen = [seq for seq in able if seq.request_id in known]
        if len(chosen) > shadow.rows:
            first = self._turn % len(chosen)
            chosen = [*chosen[first:], *chosen[:first]][: shadow.rows]
            self._turn += shadow.rows
        self._reading = 0
        strangers = [seq for seq in able if seq.request_id not in known]
        if strangers and len(chosen) < shadow.rows and not (shadow.again and chosen):
            shortest = min(strangers, key=lambda seq: len(seq.tokens))
            read_s = self._read_s.get(arm, arm.read_s)
            if not read_s or affords(read_s * len(shortest.tokens)):
                self._reading = len(shortest.tokens)
                known.add(shortest.request_id)
                chosen.append(shortest)
        return chosen

    def beyond_s(
        self, shadow: Shadow | None, price_s: float, asking_s: float, of: Gathered
    ) -> float:
        """Seconds of this thread that a step's evidence took beyond `price_s`; below zero where it
        was cheaper. asking_s: what telling and asking took before the step."""
        if shadow is None:
            self.usual_s += SMOOTH * (asking_s - self.usual_s)
            return 0.0
        if shadow.arm.remote:
            return 0.0
        more_s = max(0.0, asking_s - self.usual_s)
        if self._reading:
            now = more_s / self._reading
            old = self._read_s.get(shadow.arm, now)
            self._read_s[shadow.arm] = old + 0.3 * (now - old)
            self._reading = 0
        drafted_us = (draft.draft_us for arm, draft in of.shadows.values() if arm == shadow.arm)
        return more_s + max(drafted_us, default=0) / 1e6 - price_s
