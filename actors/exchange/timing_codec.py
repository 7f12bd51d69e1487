"""What drafters timed of themselves, on the wire and back."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence

from actors.exchange.limits import MAX_BLOCK, MAX_TIMINGS
from actors.exchange.wire_error import WireError, check
from pilotfish.v1 import exchange_pb2 as pb

log = logging.getLogger(__name__)

Timings = tuple[tuple[int, int, float], ...]
"""(sessions, depth, seconds)"""

MOST_SESSIONS = 1 << 16
MOST_S = 3600.0


def timings_to_pb(timings: Iterable[tuple[int, int, float]]) -> list[pb.DraftTiming]:
    return [pb.DraftTiming(sessions=n, depth=d, seconds=seconds) for n, d, seconds in timings]


def timings_from_pb(messages: Sequence[pb.DraftTiming]) -> Timings:
    """A grid that cannot be is said and left out whole: its drafter is as good as one that has
    timed nothing (law L2)."""
    try:
        return _checked(messages)
    except WireError as error:
        log.warning("what a drafter timed of itself is not used: %s", error)
        return ()


def _checked(messages: Sequence[pb.DraftTiming]) -> Timings:
    """Raises WireError."""
    check(len(messages) <= MAX_TIMINGS, "timings", f"more than {MAX_TIMINGS}")
    for one in messages:
        check(0 < one.sessions <= MOST_SESSIONS, "sessions", f"must be in [1, {MOST_SESSIONS}]")
        check(0 < one.depth <= MAX_BLOCK, "depth", f"must be in [1, {MAX_BLOCK}]")
        sound = math.isfinite(one.seconds) and 0.0 < one.seconds <= MOST_S
        check(sound, "seconds", f"must be in (0, {MOST_S:g}]")
    pairs = {(one.sessions, one.depth) for one in messages}
    check(len(pairs) == len(messages), "timings", "two of one kind")
    return tuple((one.sessions, one.depth, one.seconds) for one in messages)
