"""What one verifier has learnt by itself, in counts that can be added to those of others.

The engine notes every scored block here beside its estimates. Estimates also hold what the verifier
was told by others; a tally never does, so nothing that is told comes back and counts again. It
is a total and no difference since the last report: a report that is lost, late, or heard twice is
made good by the next one, and a policy actor that starts anew has everything with the first.
Evidence fades with steps as in the estimates (`policies.estimate`), so a tally is never stale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from policies.acceptance import Acceptance
from policies.cohorts import DEFAULT, MAX_COHORTS
from policies.estimate import MEMORY, Counts, Key, Scored

MAX_MECHANISMS = 16
MAX_POSITIONS = 16
"""Positions behind it lean on this one, as all do on the one before."""
LEAST_BLOCKS = 0.5
"""Less evidence is not worth sending."""


Totals = Mapping[Key, Counts]
"""By (cohort, mechanism)."""


@dataclass(frozen=True, slots=True)
class Report:
    """sequence: larger is newer, 0 is a tally without any block."""

    sequence: int
    totals: Totals


class Tally:
    """Belongs to the engine's thread. Holds at most 64 cohorts and 16 mechanisms; for one more the
    one that has been without blocks longest goes."""

    def __init__(self) -> None:
        self._sequence = 0
        self._known: dict[Key, tuple[int, Counts]] = {}  # step of the last block, counts then

    def note(self, key: Key, blocks: Sequence[Scored], step: int) -> None:
        """Blocks of one step that may be counted (`estimate.fair`). A request without a cohort is
        of `default`: the empty name stands for all of them together."""
        if not blocks:
            return
        key = (key[0] or DEFAULT, key[1])
        if key not in self._known:
            self._make_room(key)
        last, counts = self._known.get(key, (step, Counts()))
        self._known[key] = max(step, last), _aged(counts, last, step).plus(blocks)
        self._sequence += 1

    def forget(self, cohort: str) -> None:
        """The cohort's text has changed its nature: what was learnt of it is no news to anybody."""
        self._known = {k: known for k, known in self._known.items() if k[0] != (cohort or DEFAULT)}
        self._sequence += 1

    def taken(self) -> Report:
        """What to send, as of the newest block."""
        now = max((step for step, _ in self._known.values()), default=0)
        totals = {key: _aged(counts, last, now) for key, (last, counts) in self._known.items()}
        enough = {key: _cut(of) for key, of in totals.items() if of.blocks >= LEAST_BLOCKS}
        return Report(self._sequence, enough)

    def _make_room(self, key: Key) -> None:
        for part, most in ((0, MAX_COHORTS), (1, MAX_MECHANISMS)):
            newest: dict[str, int] = {}
            for known, (step, _) in self._known.items():
                newest[known[part]] = max(step, newest.get(known[part], step))
            if key[part] not in newest and len(newest) >= most:
                gone = min(newest, key=lambda name: newest[name])
                self._known = {k: of for k, of in self._known.items() if k[part] != gone}


def _aged(counts: Counts, last: int, step: int) -> Counts:
    return counts if step <= last else counts.faded(math.exp((last - step) / MEMORY))


def _cut(counts: Counts) -> Counts:
    """Its first positions."""

    def first(of: Acceptance) -> Acceptance:
        return Acceptance(of.decided[:MAX_POSITIONS], of.accepted[:MAX_POSITIONS])

    return Counts(first(counts.accept), first(counts.reach))
