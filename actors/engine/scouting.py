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
    """One engine's. What telling and asking drafters takes of a step is known by who is asked."""

    def __init__(self) -> None:
        self._usual_s: dict[frozenset[Arm], float] = {}
        self._known: dict[Arm, set[str]] = {}
        self._read_s: dict[Arm, float] = {}  # of a token, by arm
        self._reading = 0  # tokens, for the shadow of this step
        self.refused_s: dict[Arm, float] = {}  # what a shadow came to nothing for: to read a text
        self._new = False  # whether a request that is asked in this step is a stranger
        self._turn = 0

    def usual_s(self, asked: frozenset[Arm]) -> float:
        """What telling and asking these takes of this thread, on average."""
        return self._usual_s.get(asked, 0.0)

    def begin(self) -> None:
        """Another step."""
        self._reading, self._new = 0, False

    @property
    def explores(self) -> bool:
        """Whether a text is read for the shadow of this step."""
        return self._reading > 0

    @property
    def reads(self) -> bool:
        """Whether a text is read in this step, so that its blocks take longer than blocks do."""
        return self._new or self._reading > 0

    def read_s(self, arm: Arm, seq: Sequence) -> float:
        """Seconds of this thread until the drafter has read a request's text; 0 of one it knows,
        and of drafters elsewhere."""
        if seq.request_id in self._known.get(arm, ()):
            return 0.0
        return self._read_s.get(arm, arm.read_s) * len(seq.tokens)

    def knows(self, arm: Arm, request_id: str) -> None:
        """The arm is asked for a block of this request."""
        known = self._known.setdefault(arm, set())
        if request_id not in known:
            known.add(request_id)
            self._new = self._new or not arm.remote

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
        strangers = [seq for seq in able if seq.request_id not in known]
        if strangers and len(chosen) < shadow.rows and not (shadow.again and chosen):
            shortest = min(strangers, key=lambda seq: len(seq.tokens))
            read_s = self.read_s(arm, shortest)
            if not read_s or affords(read_s):
                self._reading = len(shortest.tokens)
                known.add(shortest.request_id)
                chosen.append(shortest)
            elif not chosen:
                self.refused_s[arm] = read_s
        return chosen

    def beyond_s(
        self,
        shadow: Shadow | None,
        price_s: float,
        asking_s: float,
        asked: frozenset[Arm],
        of: Gathered,
    ) -> float:
        """Seconds of this thread that a step's evidence took beyond `price_s`; below zero where it
        was cheaper. asking_s: what telling and asking took before the step; asked: for blocks that
        may be verified."""
        usual_s = self._usual_s.setdefault(asked, 0.0)
        if shadow is None and not self._new:
            self._usual_s[asked] += (SMOOTH if usual_s else 1.0) * (asking_s - usual_s)
        if shadow is None or shadow.arm.remote or self._new:
            return 0.0
        more_s = max(0.0, asking_s - usual_s)
        drafted_us = (draft.draft_us for arm, draft in of.shadows.values() if arm == shadow.arm)
        drafted_s = max(drafted_us, default=0) / 1e6
        if not any(arm.remote for arm in asked):
            # What was drafted here was drafted in this wait; blocks that came out empty as well.
            others_us = max((draft.draft_us for draft in of.drafts.values()), default=0)
            drafted_s = max(drafted_s, of.waited_s - others_us / 1e6)
        if self._reading and drafted_s:
            # Read where it is told, or with the first block, as the drafter likes.
            now = (more_s + max(0.0, drafted_s - price_s)) / self._reading
            old = self._read_s.get(shadow.arm, now)
            self._read_s[shadow.arm] = old + 0.3 * (now - old)
        return more_s + drafted_s - price_s
