"""How many drafters a pool needs: by how busy they are, and how many of their blocks come too late.

Blocks that are late while drafters are idle are late for another reason (the wire, a step that is
too short for any drafter), and more drafters would not help. A pool that nobody wants needs none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from policies.autoscale import Look

MARGIN = 0.25
QUEUEING = 0.5
"""Of the target's busy share: from there on, blocks may be late because others were before them."""
MOST = 2.0
"""At most so many times the drafters at one look: how many would do is not known."""
REMEMBERED = 8
"""A count at which blocks were late is not tried again for so many downscale delays."""

Signal = Literal["unwanted", "busy", "late", "idle"]


@dataclass(frozen=True, slots=True)
class DrafterTargets:
    """busy_share: of a drafter's time, spent drafting. late_share: of the blocks asked for, those
    that came when the step had gone."""

    busy_share: float = 0.6
    late_share: float = 0.1


@dataclass(frozen=True, slots=True)
class DrafterLoad:
    """One drafter. wanted: whether any verifier wants its mechanism (`policies.autoscale_pool`)."""

    busy_share: float
    late_share: float = 0.0
    wanted: bool = True


@dataclass(frozen=True, slots=True)
class Late:
    """With so many drafters blocks were late, last at `at_s`."""

    count: int = 0
    at_s: float = float("-inf")


def demand(
    loads: Sequence[DrafterLoad],
    targets: DrafterTargets,
    late: Late,
    now_s: float,
    downscale_delay_s: float,
) -> tuple[Signal, Look, Late]:
    """What the pool's drafters ask for; `loads`: of all that report, one at least."""
    if not any(load.wanted for load in loads):
        return "unwanted", Look(0, 0), late
    count = len(loads)
    busy = sum(load.busy_share for load in loads)
    missed = sum(load.late_share for load in loads) / count
    by_busy = busy / targets.busy_share
    by_late = 0.0
    if missed > targets.late_share and busy / count > QUEUEING * targets.busy_share:
        by_late = count * min(missed / targets.late_share, MOST)
        late = Late(count, now_s)
    add = max(1, math.ceil(max(by_busy, by_late)))
    keep = max(add, math.ceil((1.0 + MARGIN) * by_busy))
    if now_s - late.at_s <= REMEMBERED * downscale_delay_s:
        keep = max(keep, late.count + 1)
    signal: Signal = "late" if by_late > by_busy else "busy" if busy > 0.0 else "idle"
    return signal, Look(add, keep), late
