"""Which drafter gets a session: bounded-load rendezvous hashing.

Each session ranks all drafters by a hash of (session, drafter) and takes the first with room, so
verifiers agree with nobody and still spread evenly; when a drafter leaves, only its own sessions
move. Sources: Thaler and Ravishankar 1998 (highest random weight); Mirrokni, Thorup and
Zadimoghaddam 2018, arXiv 1608.01350 (bounded loads).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

SLACK = 1.25
"""No drafter carries more than this times the mean load, rounded up."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A drafter that accepts sessions. load: those it has now. capacity: 0 is unbounded."""

    name: str
    load: int
    capacity: int = 0


def rank(session: str, names: Iterable[str]) -> list[str]:
    """All drafters in the session's own order of preference, the same for every caller."""
    return sorted(names, key=lambda name: (-_weight(session, name), name))


def choose(session: str, candidates: Sequence[Candidate], slack: float = SLACK) -> str | None:
    """The drafter for a new session, or None when nobody has room."""
    if not candidates:
        return None
    total = sum(c.load for c in candidates) + 1
    bound = math.ceil(slack * total / len(candidates))
    room = {c.name for c in candidates if not c.capacity or c.load < c.capacity}
    light = {c.name for c in candidates if c.load < bound}
    ranked = rank(session, room)
    return next((name for name in ranked if name in light), ranked[0] if ranked else None)


def _weight(session: str, name: str) -> int:
    digest = blake2b(f"{len(session)}:{session}{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
