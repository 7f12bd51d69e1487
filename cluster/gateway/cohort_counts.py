"""What was delivered to each cohort: drafts, what of them was accepted, and what fell back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from cluster.gateway.cells import OTHER, Cells
from cluster.gateway.types import Delta

FALLBACKS = frozenset(
    {
        "no-drafter", "cold", "late", "stale", "fault", "overloaded", "isolated", "context",
        "evicted", "slower",
    }
)  # fmt: skip
"""Reasons of rounds that speculation was meant for: the drafter or the way to it failed them, or
the control found the cohort slower with it. What the policy, the client or the end of the text
asked for is none."""


@dataclass(slots=True)
class Delivered:
    """drafts: rounds that verified one, by (mechanism, placement); drafted, accepted: tokens;
    fallbacks: rounds, by reason."""

    drafts: Counter[tuple[str, str]] = field(default_factory=Counter)
    drafted: int = 0
    accepted: int = 0
    fallbacks: Counter[str] = field(default_factory=Counter)


class CohortCounts:
    """cohorts: the names that the rules can give."""

    def __init__(self, cells: Cells, cohorts: Iterable[str]) -> None:
        self._known = frozenset(cohorts)
        by = ("cohort", "mechanism", "placement")
        self._drafts = cells.table("pilotfish:cohort_drafts", "Rounds that verified a draft.", by)
        self._drafted = cells.table("pilotfish:cohort_draft_tokens", "Drafted tokens verified.", by)
        self._accepted = cells.table(
            "pilotfish:cohort_accepted_tokens", "Drafted tokens accepted and delivered.", by
        )
        self._fallbacks = cells.table(
            "pilotfish:fallbacks",
            "Rounds of standard decode that were meant to be drafted, by what prevented it.",
            ("cohort", "reason"),
        )

    def round(self, cohort: str, delta: Delta) -> None:
        """One delivered delta."""
        if delta.drafted:
            labels = self._name(cohort), delta.mechanism, "remote" if delta.remote else "colocated"
            self._drafts.at(*labels).inc()
            self._drafted.at(*labels).inc(delta.drafted)
            self._accepted.at(*labels).inc(delta.accepted)
        elif delta.reason in FALLBACKS:
            self._fallbacks.at(self._name(cohort), delta.reason).inc()

    def delivered(self) -> dict[str, Delivered]:
        """By cohort, since the start."""
        found: dict[str, Delivered] = {}
        for labels, drafts in self._drafts.cells():
            cohort, mechanism, placement = labels
            of = found.setdefault(cohort, Delivered())
            of.drafts[mechanism, placement] += int(drafts.value)
            of.drafted += int(self._drafted.at(*labels).value)
            of.accepted += int(self._accepted.at(*labels).value)
        for (cohort, reason), rounds in self._fallbacks.cells():
            found.setdefault(cohort, Delivered()).fallbacks[reason] += int(rounds.value)
        return found

    def _name(self, cohort: str) -> str:
        return cohort if cohort in self._known else OTHER
