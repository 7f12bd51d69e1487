"""What a simulated run delivered, by law: every token is a round's own or an accepted draft."""

from __future__ import annotations

from dataclasses import dataclass, field

BINS = 60
"""Of the series over time."""


@dataclass(slots=True)
class Bin:
    """A slice of the run, by the end of its steps. ways: way -> rows that verified its blocks."""

    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    ways: dict[str, int] = field(default_factory=dict)

    @property
    def depth(self) -> float:
        """Mean D over the rounds of all rows, those at 0 among them."""
        return self.drafted / self.rounds if self.rounds else 0.0


@dataclass(slots=True)
class Totals:
    """rounds: rows of steps that wrote, first tokens among them. tokens = rounds + accepted, at
    any time. late: rows that a step went without the block of. waited_s: for remote blocks, of all
    verifiers."""

    duration_s: float
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    late: int = 0
    steps: int = 0
    waited_s: float = 0.0
    arrived: int = 0
    finished: int = 0
    ttft_s: list[float] = field(default_factory=list)
    tpot_s: list[float] = field(default_factory=list)

    @property
    def goodput(self) -> float:
        """Tokens a second."""
        return self.tokens / self.duration_s

    @property
    def acceptance_length(self) -> float:
        """Tokens a round, over all rounds."""
        return self.tokens / self.rounds if self.rounds else 0.0


@dataclass(slots=True)
class Account(Totals):
    """The seconds are of all verifiers: verify_s in steps, drafted_s on drafters' own devices."""

    verify_s: float = 0.0
    drafted_s: float = 0.0
    by_cohort: dict[str, int] = field(default_factory=dict)
    bins: list[Bin] = field(default_factory=lambda: [Bin() for _ in range(BINS)])

    def bin_at(self, now_s: float) -> Bin:
        place = int(now_s / self.duration_s * BINS)
        return self.bins[min(max(place, 0), BINS - 1)]

    def wrote(
        self, now_s: float, cohort: str, way: str, *, drafted: int, accepted: int, tokens: int
    ) -> None:
        """One row of one step."""
        part = self.bin_at(now_s)
        for of in (self, part):
            of.tokens += tokens
            of.rounds += 1
            of.drafted += drafted
            of.accepted += accepted
        if drafted:
            part.ways[way] = part.ways.get(way, 0) + 1
        self.by_cohort[cohort] = self.by_cohort.get(cohort, 0) + tokens

    def phase_goodput(self, start_s: float, end_s: float) -> float:
        """Tokens a second between two times, to the width of a bin."""
        width = self.duration_s / BINS
        first, last = round(start_s / width), round(end_s / width)
        part = self.bins[first:last]
        return sum(b.tokens for b in part) / (width * len(part)) if part else 0.0


def quantile(values: list[float], share: float) -> float | None:
    """The nearest-rank quantile; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
