"""Who may feed how many rows in one forward of a drafter with a KV of its own."""

from __future__ import annotations

from collections.abc import Sequence


def allot(missing: Sequence[int], entitled: int, extra: int) -> list[int]:
    """Rows for each session that lacks missing[i] rows.

    Each gets up to `entitled`; `extra` rows more go to those that lack least, so that sessions
    that run never wait for a long prompt, and a long prompt still moves on every time.
    """
    counts = [min(lack, entitled) for lack in missing]
    for i in sorted(range(len(missing)), key=lambda i: missing[i]):
        more = min(missing[i] - counts[i], extra)
        counts[i] += more
        extra -= more
    return counts
