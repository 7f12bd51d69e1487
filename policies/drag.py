"""What drafting elsewhere slows the target down, where it is not elsewhere enough.

A drafter in a process of its own may share cores, caches or the memory bus with the target. No
clock of its own shows that, and no wait: forwards simply take longer while it drafts. So forwards
beside which blocks were drafted are held against those without any, each as a multiple of what its
rows were expected to take. The control measures the same in the end (`policies.control_ratio`),
from one step in 64; this looks at every step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MEMORY = 64.0
"""Forwards that a mean remembers."""
ENOUGH = 32
"""Of each kind, before anything is said."""
DOUBT = 0.01
"""So little is noise."""
LIMIT = 2.0
"""A forward counts at most this factor, up or down: some are interrupted."""


@dataclass(frozen=True, slots=True)
class Drag:
    """Means of measured over expected seconds; how many forwards are in each."""

    beside: float = 1.0
    alone: float = 1.0
    count_beside: int = 0
    count_alone: int = 0


def observed(drag: Drag, ratio: float, *, beside: bool) -> Drag:
    """After a forward. ratio: what it took over what its rows were expected to take; beside:
    whether blocks were being drafted elsewhere meanwhile."""
    ratio = min(max(ratio, 1.0 / LIMIT), LIMIT)
    if beside:
        count = drag.count_beside + 1
        return replace(drag, beside=_moved(drag.beside, ratio, count), count_beside=count)
    count = drag.count_alone + 1
    return replace(drag, alone=_moved(drag.alone, ratio, count), count_alone=count)


def share(drag: Drag) -> float:
    """Of a forward, what drafting beside it adds; 0 while too little is known."""
    if min(drag.count_beside, drag.count_alone) < ENOUGH:
        return 0.0
    return max(0.0, drag.beside / drag.alone - 1.0 - DOUBT)


def _moved(mean: float, value: float, count: int) -> float:
    return mean + (value - mean) / min(count, MEMORY)
