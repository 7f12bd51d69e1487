"""Which prompts each cell gets: the same for every leg, fresh for every cell while there are any.

A prompt that a drafter has seen answered before may be drafted from that answer, so a repeat is
never passed off as a first reading (pitfall S58): the ledger marks it, and figures of a server that
may keep something across requests come from first readings only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

from cluster.bench.dataset import Prompt


def spread(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Categories take turns, so that any stretch covers as many of them as it can."""
    queues: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        queues.setdefault(prompt.category, []).append(prompt)
    order: list[Prompt] = []
    while queues:
        for category in list(queues):
            order.append(queues[category].pop(0))
            if not queues[category]:
                del queues[category]
    return order


def deal(prompts: Sequence[Prompt], sizes: Sequence[int]) -> list[tuple[Prompt, ...]]:
    """One hand of prompts for each size, from a deck that starts anew when it is used up."""
    deck = cycle(spread(prompts))
    return [tuple(islice(deck, size)) for size in sizes]


@dataclass(slots=True)
class Ledger:
    """Which prompts each server has answered with drafts."""

    _seen: dict[str, set[str]] = field(default_factory=dict)

    def note(self, server: str, prompts: Sequence[Prompt]) -> int:
        """Enter what `server` is about to be asked; how many of them it knows already, repeats
        within `prompts` included."""
        seen = self._seen.setdefault(server, set())
        repeated = 0
        for prompt in prompts:
            repeated += prompt.digest in seen
            seen.add(prompt.digest)
        return repeated
