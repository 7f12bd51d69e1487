"""Who gets what there is too little of: the rows of a forward, and places beside those that run.

Priorities are vLLM's: lower is earlier, and strict. Within one priority tenants share alike; within
one tenant the oldest request is never held up by more than half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request whose prompt is not computed yet; rows: how many are left, at least 1."""

    tenant: str
    priority: int
    rows: int


def share_rows(prompts: Sequence[Prompt], budget: int) -> list[int]:
    """Rows for each of the prompts (oldest first), at most `budget` in all and never more than a
    prompt has left. Nothing is kept back while anyone wants it."""
    given = [0] * len(prompts)
    for priority in sorted({prompt.priority for prompt in prompts}):
        tenants: dict[str, list[int]] = {}
        for i, prompt in enumerate(prompts):
            if prompt.priority == priority:
                tenants.setdefault(prompt.tenant, []).append(i)
        wants = [sum(prompts[i].rows for i in mine) for mine in tenants.values()]
        for mine, part in zip(tenants.values(), max_min(wants, budget), strict=True):
            rows = _old_and_short([prompts[i].rows for i in mine], part)
            for i, count in zip(mine, rows, strict=True):
                given[i] = count
            budget -= part
    return given


def max_min(wants: Sequence[int], budget: int) -> list[int]:
    """The max-min fair division of `budget`: nobody gets more than it wants, and nobody could get
    more without someone who has no more getting less. Source: Bertsekas and Gallager, Data
    Networks, 6.5.2."""
    given = [0] * len(wants)
    smallest_first = sorted(range(len(wants)), key=lambda i: wants[i])
    for place, i in enumerate(smallest_first):
        others = len(wants) - place
        given[i] = min(wants[i], -(-budget // others))
        budget -= given[i]
    return given


def _old_and_short(rows: Sequence[int], budget: int) -> list[int]:
    """Half for the oldest, so that nobody starves; the rest shortest first, which ends most waits
    soonest. Prompts of one length are so computed one after the other, and a short one overtakes
    the rest of a long one."""
    given = [0] * len(rows)
    if rows:
        given[0] = min(rows[0], -(-budget // 2))
        budget -= given[0]
    for i in sorted(range(len(rows)), key=lambda i: rows[i] - given[i]):
        more = min(rows[i] - given[i], budget)
        given[i] += more
        budget -= more
    return given
