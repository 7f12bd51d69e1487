"""Whether what is observed has left what was expected: a two-sided CUSUM (Page, 1954).

It adds up standardised deviations beyond a slack and alarms at a limit. Blocks of one text are
alike, so deviations scatter more than independent blocks would; the scatter is learnt, and each
deviation is divided by it. With a slack of half a deviation and a limit of 6.5, independent steps
give a false alarm in some 2,100 (Siegmund's approximation), and a shift by one deviation is seen
in about 13 steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SLACK = 0.5
LIMIT = 6.5
SUSPICION = 3.0
"""From here on it is worth a second look."""
WIDEST = 4.0
"""A single deviation counts at most so much: no one step can raise the alarm."""
_NEWEST = 0.02


@dataclass(frozen=True, slots=True)
class Cusum:
    """up, down: what has added up on each side; risen, fallen: over how many observations, since
    that was last nothing. spread: the mean square of deviations, at least 1."""

    up: float = 0.0
    down: float = 0.0
    spread: float = 1.0
    risen: int = 0
    fallen: int = 0


def watched(state: Cusum, deviation: float) -> tuple[Cusum, int]:
    """After one observation, `deviation` in standard deviations of what was expected. 0 is quiet;
    else it is an alarm, and the sums begin anew: the change has most likely come with so many of
    the newest observations, those since the sum that alarms was last nothing (Page, 1954)."""
    size = min(max(deviation / math.sqrt(state.spread), -WIDEST), WIDEST)
    up = max(0.0, state.up + size - SLACK)
    down = max(0.0, state.down - size - SLACK)
    square = min(deviation * deviation, WIDEST * WIDEST)
    spread = max(1.0, state.spread + _NEWEST * (square - state.spread))
    risen = state.risen + 1 if up else 0
    fallen = state.fallen + 1 if down else 0
    if max(up, down) > LIMIT:
        return calmed(state), risen if up > down else fallen
    return Cusum(up, down, spread, risen, fallen), 0


def calmed(state: Cusum) -> Cusum:
    """With sums that begin anew: what had added up is explained."""
    return Cusum(spread=state.spread)


def suspicious(state: Cusum) -> bool:
    """Whether one more observation like the last ones would raise the alarm."""
    return max(state.up, state.down) > SUSPICION
