"""The account in a terminal: a few tables that fit 100 columns, and what is not in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from cluster.bench.baseline import Comparison, change
from cluster.bench.record import Record
from cluster.bench.stats import Ratio, Spread
from cluster.bench.summary import LegFigures

ABSENT = "–"


def show(record: Record, console: Console) -> None:
    for title, heads, rows in tables(record):
        show_whole(console, _table(title, heads, rows))
    for line in notes(record):
        console.print(escape(line), highlight=False)


def tables(record: Record) -> Iterable[tuple[str, list[str], list[list[str]]]]:
    """(title, headings, rows) of text; the page shows the same ones."""
    figures = record.figures
    yield "Rates: medians over runs; ratios to standard decode with 95% intervals", *_rates(figures)
    yield "Latencies of a client (ms)", *_latencies(figures)
    if any(f.drafted for f in figures):
        yield "Acceptance length by category", *_categories(figures)
        yield "Accepted of the tokens drafted at each position", *_positions(figures)
    if any(f.split for f in figures):
        yield "A step of the engine (ms), and a block's own way", *_splits(figures)


def notes(record: Record) -> Iterable[str]:
    """What a reader must know beside the figures."""
    machine, workload = record.machine, record.workload
    busy = " to ".join(text(value, 1) for value in record.busy)
    yield f"machine: {machine.title}; load average {busy}"
    yield (
        f"model {record.model.get('id')} in {record.model.get('dtype')}; {workload.dataset}: "
        f"{workload.prompts} prompts, {workload.prompts_a_run} a run, {workload.runs} runs, "
        f"at most {workload.max_tokens} tokens each, warm-up of {workload.warmup} apart"
    )
    if workload.duplicates:
        yield f"{workload.duplicates} lines of the file repeat another prompt and were left out"
    for figures in record.figures:
        yield from _repeats(figures)
    for refused in record.refused:
        yield (
            f"REFUSED {refused.leg} at T = {refused.temperature:g}, {refused.load}, run "
            f"{refused.run + 1}: {refused.reason}"
        )


def show_comparison(comparison: Comparison, console: Console) -> None:
    baseline = comparison.baseline
    rows = [
        [
            *_setting(d.temperature, d.load, d.leg),
            *(_change(pair) for pair in (d.decode_rate, d.output_rate, d.ttft_p50)),
            f"{text(d.ratio_decode[1], 2)} → {text(d.ratio_decode[0], 2)}",
        ]
        for d in comparison.differences
    ]
    heads = ["T", "load", "leg", "tok/s a stream", "tok/s in all", "TTFT p50", "ratio then → now"]
    show_whole(console, _table(f"Against {baseline.path.name} of {baseline.date}", heads, rows))
    for caveat in comparison.caveats:
        console.print(f"note: {escape(caveat)}", highlight=False)


def text(value: float | None, digits: int) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"


def ratio_text(ratio: Ratio | None) -> str:
    if ratio is None:
        return ABSENT
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f}"
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def _repeats(figures: LegFigures) -> Iterable[str]:
    where = f"{figures.leg} at T = {figures.temperature:g}, {figures.load}"
    if figures.replayed_runs:
        yield (
            f"REPEATED {where}: {figures.replayed_runs} runs with prompts the server had answered "
            f"before are left out (their acceptance length: "
            f"{text(figures.replayed_acceptance_length, 2)}, in fresh runs "
            f"{text(figures.acceptance_length, 2)})"
        )
    elif figures.repeated:
        yield (
            f"repeated {where}: {figures.repeated} prompts had been answered before by a server "
            "that keeps nothing of them"
        )


def _rates(figures: Sequence[LegFigures]) -> tuple[list[str], list[list[str]]]:
    heads = ["T", "load", "leg", "tok/s a stream", "ratio", "tok/s a device", "ratio", "AL", "same"]
    rows = [
        [
            *_setting(f.temperature, f.load, f.leg),
            text(f.decode_rate, 1),
            ratio_text(f.ratio_decode),
            text(f.output_rate_per_device, 1),
            ratio_text(f.ratio_output),
            text(f.acceptance_length, 2),
            f"{f.identical}/{f.compared}",
        ]
        for f in figures
    ]
    return heads, rows


def _latencies(figures: Sequence[LegFigures]) -> tuple[list[str], list[list[str]]]:
    heads = ["T", "load", "leg"]
    heads += ["TTFT p50", "p95", "p99", "ITL p50", "p95", "p99", "TPOT p50", "p95", "p99", "failed"]
    rows = [
        [
            *_setting(f.temperature, f.load, f.leg),
            *(cell for spread in (f.ttft, f.itl, f.tpot) for cell in _spread(spread)),
            str(sum(run.failed for run in f.runs)),
        ]
        for f in figures
    ]
    return heads, rows


def _categories(figures: Sequence[LegFigures]) -> tuple[list[str], list[list[str]]]:
    names = sorted({c.category for f in figures for c in f.categories})
    rows = []
    for f in figures:
        if f.depth:
            found = {c.category: c.acceptance_length for c in f.categories}
            cells = [text(found.get(name), 2) for name in names]
            rows.append([*_setting(f.temperature, f.load, f.leg), *cells])
    return ["T", "load", "leg", *names], rows


def _positions(figures: Sequence[LegFigures]) -> tuple[list[str], list[list[str]]]:
    deepest = max((len(f.positions) for f in figures), default=0)
    rows = []
    for f in figures:
        if f.positions:
            cells = [f"{p.rate:.2f}" for p in f.positions]
            cells += [ABSENT] * (deepest - len(cells))
            rows.append([*_setting(f.temperature, f.load, f.leg), *cells])
    return ["T", "load", "leg", *(str(k + 1) for k in range(deepest))], rows


def _splits(figures: Sequence[LegFigures]) -> tuple[list[str], list[list[str]]]:
    heads = ["T", "load", "leg", "draft", "wire", "verify", "sample", "rest", "step"]
    heads += ["block: draft", "block: wire"]
    rows = []
    for f in figures:
        if f.split is not None:
            s = f.split
            parts = (s.draft_ms, s.wire_ms, s.verify_ms, s.sample_ms, s.rest_ms, s.step_ms)
            cells = [text(value, 2) for value in (*parts, s.block_draft_ms, s.block_wire_ms)]
            rows.append([*_setting(f.temperature, f.load, f.leg), *cells])
    return heads, rows


def _setting(temperature: float, load: str, leg: str) -> list[str]:
    return [f"{temperature:g}", load, leg]


def _spread(spread: Spread | None) -> list[str]:
    if spread is None:
        return [ABSENT] * 3
    return [text(1e3 * value, 0) for value in (spread.p50, spread.p95, spread.p99)]


def _change(pair: Sequence[float | None]) -> str:
    changed = change(pair)
    return text(pair[0], 2) if changed is None else f"{text(pair[0], 2)} ({changed:+.1%})"


def show_whole(console: Console, table: Table) -> None:
    """As wide as it is: a narrower terminal breaks the lines, and no figure is cut off."""
    width = console.width
    try:
        console.width = 10_000
        console.width = max(width, console.measure(table).maximum)
        console.print(table)
    finally:
        console.width = width
    console.print()


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", padding=(0, 1), pad_edge=False, box=None)
    for i, head in enumerate(heads):
        side: JustifyMethod = "left" if i in (1, 2) else "right"
        table.add_column(head, justify=side, header_style="bold", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table
