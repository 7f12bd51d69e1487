"""How long something that failed rests before it is tried again: doubling, capped."""

from __future__ import annotations

FIRST_S = 0.25
LONGEST_S = 30.0


def pause_s(failures: int, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> float:
    """After so many failures in a row; 0 failures need no rest."""
    if failures <= 0:
        return 0.0
    return min(first_s * 2.0 ** min(failures - 1, 32), longest_s)
