"""Which of several policy actors speaks: the one that started last (DESIGN §2).

Each has a term, larger than that of any before it, and verifiers believe the largest. A policy
actor that has spoken and hears of a larger term falls silent for good: were it to raise its own,
two would outbid each other for ever. One that has not spoken yet may: its clock was behind, and it
is the successor all the same.

Where two were started by mistake, the one that speaks may be the one that is ended when the mistake
is undone. Nobody answers verifiers then but the silent one, and they tell it so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MAX_TERM = 2**63
"""Beyond any clock: nobody's term."""
DESERTED = 100
"""Refusals in a row after which none of several policy actors speaks any more. Verifiers ask again
after a tenth of a second; within ten seconds they have heard of one that has just been started, and
one that is only slow has answered."""


@dataclass(frozen=True, slots=True)
class Reign:
    """spoken: whether a snapshot of it has been given out. successor: the term of the policy actor
    that took its place; 0 for none."""

    term: int
    spoken: bool = False
    successor: int = 0

    @property
    def over(self) -> bool:
        return self.successor > 0


def heard(reign: Reign, own_version: int, term: int, version: int) -> Reign:
    """After a verifier has said which (term, version) is its newest."""
    if term >= MAX_TERM or (term, version) <= (reign.term, own_version):
        return reign
    if not reign.spoken:
        return replace(reign, term=term + 1)
    return replace(reign, successor=max(term, reign.successor))


def deserted(reign: Reign, refusals: int) -> Reign:
    """After a verifier has said how often in a row it was told that another one speaks. Where that
    cannot be chance the successor is gone, and this one begins anew in its place."""
    if not reign.over or refusals < DESERTED:
        return reign
    return Reign(reign.successor + 1)


def spoke(reign: Reign) -> Reign:
    """A snapshot has been given out."""
    return reign if reign.spoken else replace(reign, spoken=True)
