"""Requests that wait for a place: priorities strictly, tenants alike, then by arrival."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from actors.engine.sequence import Sequence

_Rank = tuple[int, bool, int]
"""Priority (lower first), False when it ran before and was preempted, arrival."""


class Backlog:
    """One heap a tenant. A request that was preempted goes before the new ones of its priority:
    it has tokens out, and what it loses grows with every round it waits."""

    def __init__(self) -> None:
        self._heaps: dict[str, list[tuple[_Rank, Sequence]]] = {}

    def __len__(self) -> int:
        return sum(len(heap) for heap in self._heaps.values())

    def __bool__(self) -> bool:
        return bool(self._heaps)

    def __iter__(self) -> Iterator[Sequence]:
        return (seq for heap in self._heaps.values() for _, seq in heap)

    @property
    def tokens(self) -> int:
        """Of all that wait."""
        return sum(len(seq.tokens) for seq in self)

    def push(self, seq: Sequence) -> None:
        rank = (seq.request.priority, seq.preemptions == 0, seq.order)
        heapq.heappush(self._heaps.setdefault(seq.request.tenant, []), (rank, seq))

    def first(self, running: Mapping[str, int]) -> Sequence | None:
        """Who is next, given how many of each tenant's requests run: of equals in priority, the
        tenant with the fewest, so that a crowd of one delays no other."""
        if not self._heaps:
            return None

        def turn(entry: tuple[_Rank, Sequence]) -> tuple[int, bool, int, int]:
            (priority, new, order), seq = entry
            return priority, new, running.get(seq.request.tenant, 0), order

        return min((heap[0] for heap in self._heaps.values()), key=turn)[1]

    def crowd(self, tenant: str) -> Sequence | None:
        """Who gives way when the line is full and `tenant` comes with one more: the last in line
        of the tenant with the most, while that has more than the newcomer would. Only a request
        that nobody has heard from yet."""
        most = max(self._heaps.values(), key=len, default=[])
        if len(most) <= len(self._heaps.get(tenant, ())) + 1:
            return None
        unheard = [e for e in most if e[0][1] and not e[1].request.output_ids]
        return max(unheard)[1] if unheard else None

    def remove(self, seq: Sequence) -> None:
        """Raises ValueError when it does not wait here."""
        heap = self._heaps.get(seq.request.tenant, [])
        place = next((i for i, (_, other) in enumerate(heap) if other is seq), None)
        if place is None:
            raise ValueError(f"{seq.request_id} does not wait")
        heap[place] = heap[-1]
        heap.pop()
        heapq.heapify(heap)
        if not heap:
            del self._heaps[seq.request.tenant]
