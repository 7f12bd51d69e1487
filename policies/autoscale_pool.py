"""When a pool of drafters is wanted, and when one that is at zero is woken.

Verifiers say why they want a mechanism, with each report:

- `used`    a cohort drafts by it now, or would if its drafters were there;
- `gain`    nobody does, but what is known of it promises more than what is done instead;
- `due`     too little is known, or what is known is old: it should be looked at again.

The first two keep a pool up and wake it at once. A look wakes it too, but a pool that was looked at
in vain sleeps longer each time, so that a drafter without worth costs less and less.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Want = Literal["used", "gain", "due"]

HOLD_S = 10.0
"""A wish holds for so long: reports come every second or two."""
LOOK_S = 60.0
"""How long a pool stays that was woken to be looked at, once it is up."""
REST_S = 600.0
"""A pool sleeps so long before it is looked at again, twice as long after each look in vain."""
LONGEST_REST_S = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Pool:
    """wished_s: when it was last used or promised a gain. looked_s: when it came up to be looked
    at. asleep_s: since when it has no drafter; None while it has. vain: looks in a row that nothing
    came of. up_before: it has had drafters."""

    wished_s: float = float("-inf")
    looked_s: float = float("-inf")
    asleep_s: float | None = None
    vain: int = 0
    up_before: bool = False
    looking: bool = False


def heard(pool: Pool, wants: Iterable[Want], drafters: int, now_s: float) -> Pool:
    """After a verifier's report; drafters: those of the pool under lease."""
    if drafters:
        if pool.asleep_s is not None and pool.looking:
            pool = replace(pool, looked_s=now_s)
        pool = replace(pool, asleep_s=None, up_before=True)
    elif pool.asleep_s is None:
        # Gone unused since it was woken for a look: that look was in vain.
        pool = replace(pool, asleep_s=now_s, vain=pool.vain + pool.looking, looking=False)
    if any(want != "due" for want in wants):
        pool = replace(pool, wished_s=now_s, vain=0, looking=False)
    return pool


def wanted(pool: Pool, now_s: float) -> bool:
    """Whether its drafters are to stay."""
    return now_s - pool.wished_s <= HOLD_S or now_s - pool.looked_s <= LOOK_S


def rest_s(pool: Pool) -> float:
    """How long it sleeps before the next look; a mechanism nobody has seen yet is not kept
    waiting."""
    if not pool.up_before:
        return 0.0
    return float(min(REST_S * 2.0**pool.vain, LONGEST_REST_S))


def woken(pool: Pool, wants: Iterable[Want], now_s: float) -> tuple[bool, Pool]:
    """Whether a pool at zero is to have a drafter, and the pool that knows why."""
    if pool.asleep_s is None:
        return False, pool
    wishes = set(wants)
    if wishes & {"used", "gain"}:
        return True, pool
    if "due" in wishes and now_s - pool.asleep_s >= rest_s(pool):
        return True, replace(pool, looking=True)
    return False, pool
