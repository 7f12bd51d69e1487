"""From totals that engines keep since their start to what has come since they were last heard."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MOST_ENGINES = 256
"""Of those that are gone too: one that answers late must not be counted anew."""
MOST_COUNTS = 4096
"""Of one engine."""


class Growth(Generic[K]):
    """What is kept for each engine is the largest of each of its totals, so an answer that was
    overtaken by a newer one brings nothing, and sums of what is returned never fall."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, dict[K, float]] = {}

    def __len__(self) -> int:
        """Engines that are remembered."""
        return len(self._seen)

    def since(self, engine: Hashable, totals: Mapping[K, float]) -> dict[K, float]:
        """What each total has grown by; those that have not are left out. An engine is known by a
        name that its successor does not have."""
        seen = self._seen.pop(engine, {})
        grown = {}
        for key, total in totals.items():
            before = seen.pop(key, 0.0)
            if total > before:
                grown[key] = total - before
            seen[key] = max(total, before)
        self._seen[engine] = seen
        _forget(seen, MOST_COUNTS)
        _forget(self._seen, MOST_ENGINES)
        return grown


def _forget(table: dict[Any, Any], most: int) -> None:
    """Those that were heard of longest ago."""
    while len(table) > most:
        del table[next(iter(table))]
