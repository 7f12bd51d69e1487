"""How many rows of prompts a step may take beside running streams, from what steps have cost.

A step's time is about a + b · rows. On a GPU b is next to nothing and prompts take all rows there
are; on a CPU it is most of the time, and a chunk of 512 rows would silence every stream for the
better part of a second, where many small chunks cost hardly more in all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

STALL_S = 0.1
"""A stream that writes ten times a second still reads as a stream."""

LEAST_ROWS = 32
_NEWEST = 0.2  # weight of the newest step in both averages


@dataclass(frozen=True, slots=True)
class Pace:
    """decode_s: seconds of a step without prompts. row_s: seconds that each row of a prompt adds.
    0 while nothing is known."""

    decode_s: float = 0.0
    row_s: float = 0.0


def observed(pace: Pace, seconds: float, prompt_rows: int) -> Pace:
    """After a step of `seconds` with so many rows of prompts."""
    if not prompt_rows:
        return replace(pace, decode_s=_average(pace.decode_s, seconds))
    row_s = max(0.0, seconds - pace.decode_s) / prompt_rows
    return replace(pace, row_s=_average(pace.row_s, row_s))


def prompt_rows(pace: Pace, most: int, stall_s: float = STALL_S) -> int:
    """Rows of prompts, at most `most`, that keep a step beside running streams within `stall_s`;
    where decoding alone takes half of that or more, prompts may double it."""
    room_s = max(stall_s - pace.decode_s, pace.decode_s)
    if pace.row_s * most <= room_s:
        return most
    return min(most, max(LEAST_ROWS, int(room_s / pace.row_s)))


def _average(old: float, new: float) -> float:
    return new if not old else old + _NEWEST * (new - old)
