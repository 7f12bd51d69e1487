"""The demo's account: a table by category, and whether the outputs are identical."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from cluster.demo.legs import LegResult

# Two bf16 logits of one size differ by whole units in the last place; their sums of hundreds of
# products, rounded in another order, by a few. In nats, and generous only for bf16.
NEAR_TIE = {"bfloat16": 0.5, "float32": 1e-3, "float64": 1e-9}


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt, both legs."""

    category: str
    standard: LegResult
    remote: LegResult

    @property
    def first_difference(self) -> int | None:
        """Index of the first token that differs, None when the outputs are identical."""
        ours, theirs = self.remote.token_ids, self.standard.token_ids
        for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
            if a != b:
                return i
        return None if len(ours) == len(theirs) else min(len(ours), len(theirs))

    def near_tie(self, dtype: str) -> bool:
        """Whether the first difference stands where standard decode's two best tokens were so
        close that the dtype's rounding decides."""
        at = self.first_difference
        if at is None or at >= len(self.standard.gaps):
            return False
        return self.standard.gaps[at] <= NEAR_TIE[dtype]


@dataclass(frozen=True, slots=True)
class Row:
    """Sums over prompts: rates are tokens over seconds, never means of rates."""

    name: str
    prompts: int
    standard_rate: float
    remote_rate: float
    acceptance_length: float
    remote_share: float
    identical: int

    @property
    def ratio(self) -> float:
        return self.remote_rate / self.standard_rate if self.standard_rate else 0.0


def summarise(name: str, pairs: Sequence[Pair]) -> Row:
    remote = [p.remote for p in pairs]
    standard = [p.standard for p in pairs]
    rounds = sum(r.decode_rounds for r in remote)
    return Row(
        name=name,
        prompts=len(pairs),
        standard_rate=_rate(standard),
        remote_rate=_rate(remote),
        acceptance_length=sum(r.decode_tokens for r in remote) / rounds if rounds else 1.0,
        remote_share=_share(remote),
        identical=sum(p.first_difference is None for p in pairs),
    )


def _rate(results: Iterable[LegResult]) -> float:
    results = list(results)
    seconds = sum(r.decode_s for r in results)
    return sum(r.decode_tokens for r in results) / seconds if seconds else 0.0


def _share(results: Iterable[LegResult]) -> float:
    results = list(results)
    tokens = sum(len(r.token_ids) for r in results)
    return sum(r.remote_accepted for r in results) / tokens if tokens else 0.0


def rows_of(pairs: Sequence[Pair]) -> list[Row]:
    """A row a category in order of appearance, then the total."""
    categories = dict.fromkeys(p.category for p in pairs)
    rows = [summarise(c, [p for p in pairs if p.category == c]) for c in categories]
    return [*rows, summarise("all", pairs)]


def table_of(rows: Sequence[Row], title: str) -> Table:
    # One space beside each cell at most: eight columns must fit a terminal of 80.
    table = Table(title=title, title_justify="left", padding=(0, 0), pad_edge=False)
    table.add_column("category", no_wrap=True)
    for heading in (
        "prompts",
        "standard\ntok/s",
        "remote\ntok/s",
        "ratio",
        "acceptance\nlength",
        "of remote\nblocks",
        "identical",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            str(row.prompts),
            f"{row.standard_rate:.1f}",
            f"{row.remote_rate:.1f}",
            f"{row.ratio:.2f}",
            f"{row.acceptance_length:.2f}",
            f"{row.remote_share:.0%}",
            f"{row.identical}/{row.prompts}",
            style="bold" if row is rows[-1] else None,
            end_section=row is rows[-2] if len(rows) > 1 else False,
        )
    return table
