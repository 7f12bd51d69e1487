"""What asking drafters takes of a step, all that the engine does for it beside the forward: telling
them, drafting in this process, choosing rows and learning from what came.

It is what steps with asks take more than steps without, so nobody has to know which parts of a step
are there for their sake.
"""

from __future__ import annotations

import statistics

from policies.choice import Arm

NEWEST = 15
"""Steps with asks of which the median counts: in the first ones much is done once and for all."""
LEAST = 5
"""With fewer, nothing is known."""
SMOOTH = 0.05


class Asking:
    """One engine's. Seconds of its thread, by who was asked."""

    def __init__(self) -> None:
        self._still_s, self._stills = 0.0, 0
        self._asked: dict[Arm, list[tuple[float, int]]] = {}  # newest seconds of a step, requests
        self._price_s: dict[Arm, float] = {}
        self._each_s: dict[str, float] = {}

    def still(self, beside_s: float) -> None:
        """A step in which nobody was asked took so long beside its forward."""
        self._stills += 1
        self._still_s += max(SMOOTH, 1.0 / self._stills) * (beside_s - self._still_s)

    def asked(self, arm: Arm, sessions: int, beside_s: float) -> None:
        """A step with blocks of one arm, for so many requests."""
        newest = self._asked.setdefault(arm, [])
        newest.append((beside_s, sessions))
        del newest[:-NEWEST]
        if self._stills and len(newest) >= LEAST:
            step_s = max(0.0, statistics.median(s for s, _ in newest) - self._still_s)
            self._price_s[arm] = step_s
            count = statistics.fmean(sessions for _, sessions in newest)
            self._each_s[arm.mechanism] = step_s / count

    def step_s(self, arm: Arm) -> float:
        """What asks of one step take; 0 while nothing is known."""
        return self._price_s.get(arm, 0.0)

    def each_s(self, mechanism: str) -> float:
        """What an ask takes for one request, by its newest placement."""
        return self._each_s.get(mechanism, 0.0)
