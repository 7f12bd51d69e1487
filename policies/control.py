"""Windows of standard decode in the whole verifier, so that its time is measured and not assumed.

A row at D = 0 in a batch that speculates pays that batch's step and controls nothing; a whole step
does. Time is cut into periods of 128 steps; each has one window of two, at a place that a hash of
the period draws, so that no rhythm of traffic can fall in step with it: one step in 64. Where a
cohort has been sent back to standard decode, every other window is turned round and drafts for it,
as its way back. Pure: the same seed and step give the same answer, on every rank and in a replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Literal

Kind = Literal["policy", "control", "probe"]


@dataclass(frozen=True, slots=True)
class Windows:
    """seed: the verifier's, so that replicas do not pause together. steps = 0: no windows, where a
    control replica measures instead."""

    seed: str = ""
    period: int = 128
    steps: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.steps < self.period:
            raise ValueError(f"a window of {self.steps} steps in a period of {self.period}")

    @property
    def share(self) -> float:
        """Of all steps."""
        return self.steps / self.period

    def period_of(self, step: int) -> int:
        """Which period a step is in; a pair of the control is one period."""
        return step // self.period

    def kind(self, step: int, *, returning: bool = False) -> Kind:
        """What this step is. returning: a cohort waits to be let back in."""
        if not self._inside(step):
            return "policy"
        return "probe" if returning and self.period_of(step) % 2 else "control"

    def settling(self, step: int) -> bool:
        """Whether this is the first step after a window: its drafters have been told late, so it
        is of neither kind."""
        return step > 0 and self._inside(step - 1) and not self._inside(step)

    def _inside(self, step: int) -> bool:
        if not self.steps:
            return False
        period, place = divmod(step, self.period)
        start = _drawn(self.seed, period, self.period - self.steps)
        return start <= place < start + self.steps


@lru_cache(maxsize=64)
def _drawn(seed: str, period: int, places: int) -> int:
    digest = blake2b(f"{seed}:{period}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % places
