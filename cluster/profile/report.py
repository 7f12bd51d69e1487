"""A profile as tables in a terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from actors.engine.profile import by_rows
from cluster.bench.table import show_whole
from cluster.profile.measure import Measured
from policies import estimate_cost, estimate_draft
from policies.codesign import measured
from policies.codesign.measured import Even
from policies.codesign.tiles import first_guess
from policies.estimate_cost import Sample

SEQUENCES = (1, 4, 12, 32)
NEVER = "never"
STAIR = "▲"


def show(found: Measured, console: Console) -> None:
    for line in headline(found):
        console.print(escape(line), highlight=False, soft_wrap=True)
    for title, heads, rows in tables(found):
        console.print(f"\n[bold]{escape(title)}[/bold]", highlight=False, soft_wrap=True)
        show_whole(console, _table(heads, rows))
    console.print()
    for line in notes(found):
        console.print(escape(line), highlight=False, soft_wrap=True)


def as_json(found: Measured) -> str:
    """Figures in seconds and rows; an acceptance that no draft can have is null."""
    cost = estimate_cost.profiled(found.samples)
    said = {
        "model": found.model,
        "kind": asdict(found.kind),
        "step": {
            "samples": [asdict(sample) for sample in found.samples],
            "stairs": measured.stairs(by_rows(found.samples)),
            "sequence_s": cost.sequence_s,
            "token_s": cost.token_s,
        },
        "drafts": [
            {
                "mechanism": arm.mechanism,
                "placement": arm.placement,
                "timings": [
                    {"sessions": n, "depth": depth, "seconds": seconds}
                    for n, depth, seconds in arm.timings
                ],
            }
            for arm in found.drafts
        ],
        "break_even": [_plain(even) for even in evens(found)],
        "first_guess": {"group": found.group, "depth": first_guess(found.group)},
        "kept": None if found.kept is None else str(found.kept),
    }
    return json.dumps(said, indent=1, allow_nan=False)


def evens(found: Measured) -> list[Even]:
    """At the numbers of sequences that the engine takes."""
    sequences = [n for n in SEQUENCES if n <= found.max_num_seqs]
    drafts = {arm: estimate_draft.timed(arm.timings) for arm in found.drafts}
    cost = estimate_cost.profiled(found.samples)
    return list(measured.evens(cost, drafts, sequences, _context(found.samples)))


def headline(found: Measured) -> Iterable[str]:
    kind = found.kind
    threads = f", {kind.threads} threads" if kind.device and "cuda" not in kind.executor else ""
    yield f"{found.model} in {kind.dtype} on {kind.device}{threads}; executor: {kind.executor}"
    if found.remark:
        yield f"not the native executor: {found.remark}"


def tables(found: Measured) -> Iterable[tuple[str, list[str], list[list[str]]]]:
    """(title, headings, rows) of text."""
    yield f"A step by its rows, one sequence ({STAIR}: a stair)", *_steps(found.samples)
    beside = _beside(found.samples)
    if beside:
        heads = ["rows", "sequences", "context", "ms"]
        yield "The same rows among more sequences, or over more context", heads, beside
    if found.drafts:
        yield "A round of drafting (ms): sessions x depth", *_drafts(found)
    for arm in found.drafts:
        mine = [even for even in evens(found) if even.arm == arm]
        yield (
            f"{arm.mechanism} ({arm.placement}): acceptance length that pays, and the acceptance "
            "of each token that it takes",
            *_evens(mine),
        )


def notes(found: Measured) -> Iterable[str]:
    """What a reader must know beside the figures."""
    cost = estimate_cost.profiled(found.samples)
    yield (
        f"a sequence more: {1e6 * cost.sequence_s:.0f} us; 1000 tokens of context more: "
        f"{1e9 * cost.token_s:.0f} us"
    )
    yield (
        f"first guess D = tile/G - 1 = {first_guess(found.group)} (tile 128, G = {found.group}): "
        "one sequence whose rows cost nothing yet; the table above is this machine's answer"
    )
    if any(even.beyond for even in evens(found)):
        yield "~: more rows or sessions than were measured; the curve goes on as at its end"
    if any(arm.remote for arm in found.drafts):
        trip = 1e3 * estimate_draft.UNKNOWN_S
        yield f"remote drafting is priced with {trip:g} ms of wire, until blocks have come over it"
    for mechanism in found.silent:
        yield f"{mechanism} could not be timed: it is served, and priced by its blocks"
    if found.kept is not None:
        yield f"kept in {found.kept}; the next start of such an engine begins with it"


def _steps(samples: Sequence[Sample]) -> tuple[list[str], list[list[str]]]:
    points = by_rows(samples)
    edges = measured.stairs(points)
    rows = [
        [
            str(count),
            f"{1e3 * seconds:.2f}",
            f"{seconds / points[0][1]:.2f}x",
            STAIR if count in edges else "",
        ]
        for count, seconds in points
    ]
    return ["rows", "ms", "of one row", ""], rows


def _beside(samples: Sequence[Sample]) -> list[list[str]]:
    return [
        [str(s.rows), str(s.sequences), str(s.context), f"{1e3 * s.seconds:.2f}"]
        for s in samples
        if s.sequences > 1 or s.context > _context(samples)
    ]


def _drafts(found: Measured) -> tuple[list[str], list[list[str]]]:
    pairs = sorted({(n, d) for arm in found.drafts for n, d, _ in arm.timings})
    rows = []
    for arm in found.drafts:
        known = {(n, d): seconds for n, d, seconds in arm.timings}
        cells = [f"{1e3 * known[pair]:.2f}" if pair in known else "" for pair in pairs]
        rows.append([arm.mechanism, *cells])
    return ["", *(f"{n} x {depth}" for n, depth in pairs)], rows


def _evens(found: Sequence[Even]) -> tuple[list[str], list[list[str]]]:
    sequences = sorted({even.sequences for even in found})
    rows: dict[int, list[str]] = {}
    for even in found:
        chance = NEVER if even.acceptance is None else f"{100 * even.acceptance:.0f}%"
        cell = f"{'~' if even.beyond else ''}{even.needs:.2f} ({chance})"
        rows.setdefault(even.depth, [str(even.depth)]).append(cell)
    return ["D", *(f"{n} seq." for n in sequences)], list(rows.values())


def _context(samples: Sequence[Sample]) -> int:
    """Of one sequence in most of the samples."""
    return min(sample.context for sample in samples if sample.sequences == 1)


def _plain(even: Even) -> dict[str, object]:
    figures = {name: getattr(even, name) for name in even.__slots__ if name != "arm"}
    return {"mechanism": even.arm.mechanism, "placement": even.arm.placement, **figures}


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(padding=(0, 1), pad_edge=False, box=None)
    for i, head in enumerate(heads):
        table.add_column(
            head, justify="left" if i == 0 else "right", header_style="bold", no_wrap=True
        )
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table
