"""The peers' records as one table, with ratios of the same run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from work import LENGTHS

from cluster.bench.table import show_whole

BASE = "pilotfish"
ABSENT = "–"
Records = dict[str, list[dict[str, Any]]]
"""leg -> its records, one a round."""

FIGURES: tuple[tuple[str, str, Callable[[dict[str, Any]], float | None], bool], ...] = (
    ("1 client\ntok/s", "decode", lambda r: r["decode_tokens_per_s"], True),
    ("together\ntok/s", "together", lambda r: r["together_tokens_per_s"], True),
    *(
        (f"first token\n{n} (s)", f"ttft_{n}", lambda r, n=n: r["first_token_s"].get(str(n)), False)
        for n in LENGTHS
    ),
)
"""Heading, key, where it is in a record, whether more is better."""


def leg_name(peer: str, variant: str) -> str:
    return peer if variant == "plain" else f"{peer} {variant}"


def read(folder: Path) -> Records:
    """Our standard decode first."""
    records: Records = {}
    for file in sorted(folder.glob("*.round*.json")):
        record = json.loads(file.read_text("utf-8"))
        records.setdefault(leg_name(record["peer"], record["variant"]), []).append(record)
    return dict(sorted(records.items(), key=lambda item: item[0] != BASE))


def summary(records: Records) -> dict[str, dict[str, Any]]:
    """Per leg and figure: the median over rounds, its range, and the ratio to our standard
    decode, pairwise by round; for times the ratio is turned round, so more is better."""
    rows: dict[str, dict[str, Any]] = {}
    for leg, rounds in records.items():
        row: dict[str, Any] = {"rounds": len(rounds), "versions": rounds[0]["versions"]}
        for _, key, of, more in FIGURES:
            values = [v for r in rounds if (v := of(r)) is not None]
            row[key] = _figure(values, _ratios(rounds, records.get(BASE, []), of, more))
        row["same_text"] = _same(rounds[0], records.get(BASE, []))
        rows[leg] = row
    return rows


def show(records: Records, failures: Sequence[str], console: Console) -> None:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    table.add_column("leg")
    for heading, *_ in FIGURES:
        table.add_column(heading, justify="right")
        table.add_column("ratio\n", justify="right")
    table.add_column("same\ntext", justify="right")
    for leg, row in summary(records).items():
        cells = []
        for _, key, _, _ in FIGURES:
            figure = row[key]
            cells += [
                _text(figure),
                ABSENT if figure["ratio"] is None else f"{figure['ratio']:.2f}",
            ]
        table.add_row(leg, *cells, row["same_text"])
    show_whole(console, table)
    for failure in failures:
        console.print(f"NOT MEASURED {failure}", markup=False, highlight=False)


def _figure(values: Sequence[float], ratios: Sequence[float]) -> dict[str, Any]:
    if not values:
        return {"median": None, "low": None, "high": None, "ratio": None}
    return {
        "median": statistics.median(values),
        "low": min(values),
        "high": max(values),
        "ratio": statistics.median(ratios) if ratios else None,
    }


def _ratios(
    rounds: Sequence[dict[str, Any]],
    base: Sequence[dict[str, Any]],
    of: Callable[[dict[str, Any]], float | None],
    more: bool,
) -> list[float]:
    theirs = {r["round"]: of(r) for r in base}
    pairs = [(of(r), theirs.get(r["round"])) for r in rounds]
    return [(a / b if more else b / a) for a, b in pairs if a and b]


def _same(record: dict[str, Any], base: Sequence[dict[str, Any]]) -> str:
    """Answers equal to our standard decode's; bf16 on other kernels may differ at a near-tie."""
    if not base:
        return ABSENT
    pairs = list(zip(record["answers"], base[0]["answers"], strict=False))
    return f"{sum(a == b for a, b in pairs)}/{len(pairs)}"


def _text(figure: dict[str, Any]) -> str:
    if figure["median"] is None:
        return ABSENT
    digits = 1 if figure["median"] >= 10 else 2
    text = f"{figure['median']:.{digits}f}"
    if figure["low"] != figure["high"]:
        text += f" [{figure['low']:.{digits}f}, {figure['high']:.{digits}f}]"
    return text
