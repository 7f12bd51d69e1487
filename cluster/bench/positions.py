"""Acceptance by draft position, from the counters of /metrics before and after.

D changes from round to round, so a position's rate divides by what was drafted at that position,
not by all drafts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DRAFTED = "pilotfish:spec_decode_num_draft_tokens_per_pos_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_per_pos_total"

Counts = Mapping[int, tuple[int, int]]
"""position from 0 -> (drafted, accepted)."""


@dataclass(frozen=True, slots=True)
class Position:
    """One draft position, from 0. rate: accepted of those drafted at it."""

    position: int
    drafted: int
    accepted: int
    rate: float


def parse(text: str) -> Counts:
    """The counters of an exposition in Prometheus' text format."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, dict[int, int]] = {DRAFTED: {}, ACCEPTED: {}}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in found:
                counts, position = found[sample.name], int(sample.labels["position"])
                counts[position] = counts.get(position, 0) + int(sample.value)
    return {p: (n, found[ACCEPTED].get(p, 0)) for p, n in found[DRAFTED].items()}


def between(before: Counts, after: Counts) -> Counts:
    """What was added; positions nothing was drafted at are left out."""
    added = {}
    for position, (drafted, accepted) in after.items():
        drafted_before, accepted_before = before.get(position, (0, 0))
        if drafted > drafted_before:
            added[position] = (drafted - drafted_before, accepted - accepted_before)
    return added


def total(counts: Sequence[Counts]) -> Counts:
    whole: dict[int, tuple[int, int]] = {}
    for one in counts:
        for position, (drafted, accepted) in one.items():
            before = whole.get(position, (0, 0))
            whole[position] = (before[0] + drafted, before[1] + accepted)
    return whole


def rates(counts: Counts) -> list[Position]:
    return [
        Position(position, drafted, accepted, accepted / drafted)
        for position, (drafted, accepted) in sorted(counts.items())
    ]
