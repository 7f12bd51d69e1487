"""What a step costs by its rows: profiled at the start, kept true by the steps that run.

Between the profiled numbers of rows the curve is straight, beyond the last it goes on as at its
end. A step moves the whole curve a little (the machine has become busier, contexts longer) and its
own part of it more, so parts that are not visited stay in proportion.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

WHOLE = 0.03
"""Of a step's deviation, what the whole curve takes on."""
OWN = 0.1
"""And what the anchors beside it take on in addition."""
LIMIT = 2.0
"""A deviation counts at most this factor, up or down: steps are sometimes interrupted."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Anchors, ascending: seconds[i] of a step with rows[i] rows."""

    rows: tuple[int, ...]
    seconds: tuple[float, ...]


def profiled(samples: Sequence[tuple[int, float]]) -> Cost:
    """From (rows, seconds); more rows never cost less. Raises ValueError without samples."""
    if not samples:
        raise ValueError("a cost curve needs at least one sample")
    rows, seconds = zip(*sorted(samples), strict=True)
    return Cost(rows, _rising(seconds))


def seconds(cost: Cost, rows: int) -> float:
    """The expected time of a step of so many rows."""
    left, share = _place(cost, rows)
    if share is None:
        return cost.seconds[left]
    low, high = cost.seconds[left], cost.seconds[left + 1]
    return low + share * (high - low)


def observed(cost: Cost, rows: int, took_s: float) -> Cost:
    """After a step of `rows` rows that took `took_s`."""
    expected = seconds(cost, rows)
    off = min(max(took_s / expected, 1.0 / LIMIT), LIMIT) - 1.0
    moved = [value * (1.0 + WHOLE * off) for value in cost.seconds]
    left, share = _place(cost, rows)
    inside = 0.0 if share is None else min(max(share, 0.0), 1.0)
    moved[left] *= 1.0 + OWN * off * (1.0 - inside)
    if inside:
        moved[left + 1] *= 1.0 + OWN * off * inside
    return Cost(cost.rows, _rising(moved))


def _place(cost: Cost, rows: int) -> tuple[int, float | None]:
    """The anchor to the left, and how far (0 … 1, beyond the last: more) to the next; None where
    there is only one, or nothing to the left."""
    if len(cost.rows) == 1 or rows <= cost.rows[0]:
        return 0, None
    left = min(bisect.bisect_right(cost.rows, rows) - 1, len(cost.rows) - 2)
    return left, (rows - cost.rows[left]) / (cost.rows[left + 1] - cost.rows[left])


def _rising(values: Sequence[float]) -> tuple[float, ...]:
    most, result = 0.0, []
    for value in values:
        most = max(most, value)
        result.append(most)
    return tuple(result)
