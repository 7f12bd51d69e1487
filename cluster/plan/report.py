"""A plan as tables in a terminal, and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cluster.bench.table import show_whole
from policies.codesign.gain import expected_tokens
from policies.codesign.plan import Plan, Question, best, falls_at

NONE = "–"


def show(question: Question, plan: Plan, console: Console) -> None:
    for line in headline(question, plan):
        console.print(escape(line), highlight=False, soft_wrap=True)
    console.print()
    for title, heads, rows in tables(question, plan):
        show_whole(console, _table(title, heads, rows))
    for line in notes(question, plan):
        console.print(escape(line), highlight=False, soft_wrap=True)


def as_json(question: Question, plan: Plan) -> str:
    """Figures in seconds, bytes and rows; what is infinite or unknown is null."""
    asked = {
        "model": question.target.name,
        "gpu": question.machine.device.name,
        "tp": question.machine.tp,
        "drafter_gpu": question.drafter_machine.device.name,
        "context": question.context,
        "acceptance": question.acceptance,
    }
    return json.dumps(_finite({"asked": asked, **asdict(plan)}), indent=1, allow_nan=False)


def headline(question: Question, plan: Plan) -> Iterable[str]:
    facts, target, machine = plan.facts, question.target, question.machine
    share = f", {facts.active_weights / 1e9:.2f}B of them active" if target.experts else ""
    yield (
        f"{target.name} ({facts.weights / 1e9:.2f}B parameters{share}, {target.dtype}) on "
        f"{machine.tp} x {machine.device.title}"
    )
    guess = ", ".join(str(d) for d in facts.candidates if d)
    yield (
        f"G = {facts.group} query heads per KV head and rank; an attention tile of {facts.tile} "
        f"rows is filled at D = {facts.first_guess}" + (f"; edges at D = {guess}" if guess else "")
    )
    yield (
        f"KV {facts.kv_bytes_per_token / 1024:.1f} KiB a token; {facts.kv_room_bytes / 1e9:.1f} GB "
        f"left for it: {facts.fits} sequences of {question.context} tokens"
    )
    bound = _count(facts.compute_bound)
    yield (
        f"ridge at {facts.ridge:.0f} operations a byte: matrix products of the model's width are "
        f"compute-bound from {bound} rows on, which D reaches with 1/(1 + D) of the sequences"
    )


def tables(question: Question, plan: Plan) -> Iterable[tuple[str, list[str], list[list[str]]]]:
    """(title, headings, rows) of text."""
    yield (
        f"Verification at a context of {question.context}: a step, over standard decode's, rows M; "
        "operations a byte of attention",
        *_verifications(question, plan),
    )
    yield (
        f"Best D at an acceptance of {question.acceptance:g} a token (a guess: measure yours)",
        *_best(question, plan),
    )
    yield (
        "Acceptance length that pays (and the acceptance it takes), one sequence",
        *_even(question, plan),
    )
    yield "Between verifier and drafters, at the best D", *_pools(plan)


def notes(question: Question, plan: Plan) -> Iterable[str]:
    """What a reader must know beside the figures."""
    for mechanism in question.mechanisms:
        if (sequences := falls_at(plan.pools, mechanism.name)) is not None:
            yield f"{mechanism.name}: D falls at {sequences} sequences and more"
    over = [m for m in question.concurrencies if m > plan.facts.fits]
    if over:
        yield f"more than fit the memory at this context: {', '.join(map(str, over))} sequences"
    yield (
        f"Drafters on {question.drafter_machine.device.title}, {question.rtt_s * 1e6:.0f} us and "
        f"{question.network * 8 / 1e9:g} Gb/s away. A roofline is a first guess; `pilotfish bench` "
        "measures, and the server follows its own measurements."
    )


def _verifications(question: Question, plan: Plan) -> tuple[list[str], list[list[str]]]:
    """A row for each D; in each cell the step's seconds over standard decode's, and GEMM rows."""
    heads = ["D", "tiles", "op/byte", *(f"{m} seq." for m in question.concurrencies)]
    rows = []
    for depth in _shown(plan):
        found = [v for v in plan.verifications if v.depth == depth]
        cells = [f"{1e3 * v.verify_s:.2f} ms, {v.ratio:.2f}x, M {v.gemm_rows}" for v in found]
        first = found[0]
        rows.append([str(depth), str(first.tiles), f"{first.attention_intensity:.0f}", *cells])
    return heads, rows


def _shown(plan: Plan) -> list[int]:
    """Small D, and the first edges of tiles."""
    return sorted({0, 1, 2, 3, 5, 7, *plan.facts.candidates[:3]})


def _best(question: Question, plan: Plan) -> tuple[list[str], list[list[str]]]:
    heads = ["mechanism", *(f"{m} seq." for m in question.concurrencies)]
    rows = []
    for mechanism in question.mechanisms:
        cells = [mechanism.name]
        for sequences in question.concurrencies:
            found = best(plan.draftings, mechanism.name, sequences)
            cells.append(f"D {found.depth}, {found.speedup:.2f}x" if found else "standard")
        rows.append(cells)
    return heads, rows


def _even(question: Question, plan: Plan) -> tuple[list[str], list[list[str]]]:
    few = question.concurrencies[0]
    depths = [d for d in _shown(plan) if d]
    rows = []
    for mechanism in question.mechanisms:
        found = {
            d.depth: d
            for d in plan.draftings
            if d.mechanism == mechanism.name and d.sequences == few
        }
        cells = [mechanism.name, mechanism.kind]
        for depth in depths:
            needs = found[depth].needs
            need = NONE if needs is None else f"{needs:.2f}"
            cells.append(f"{found[depth].break_even:.2f} ({need})")
        rows.append(cells)
    brings = [f"{expected_tokens(question.acceptance, depth):.2f}" for depth in depths]
    rows.append([f"AL at {question.acceptance:g}", "", *brings])
    return ["mechanism", "drafts", *(f"D = {d}" for d in depths)], rows


def _pools(plan: Plan) -> tuple[list[str], list[list[str]]]:
    heads = ["mechanism", "sequences", "D", "verifiers : drafters", "KB raw", "fc", "fp8"]
    rows = [
        [
            pool.mechanism,
            str(pool.sequences),
            str(pool.depth),
            _ratio(pool.verifiers_per_drafter),
            f"{pool.raw_bytes / 1e3:.1f}",
            f"{pool.projected_bytes / 1e3:.1f}",
            f"{pool.fp8_bytes / 1e3:.1f}",
            f"{pool.raw_bits_s / 1e9:.2f}",
            f"{pool.fp8_bits_s / 1e9:.2f}",
        ]
        for pool in plan.pools
        if pool.depth
    ]
    return [*heads, "Gb/s raw", "Gb/s fp8"], rows


def _ratio(verifiers: float) -> str:
    return f"{verifiers:.1f} : 1" if verifiers >= 1.0 else f"1 : {1.0 / verifiers:.1f}"


def _count(value: float) -> str:
    return "no number of" if math.isinf(value) else f"{math.ceil(value)}"


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", padding=(0, 1), pad_edge=False, box=None)
    for i, head in enumerate(heads):
        table.add_column(
            head, justify="left" if i == 0 else "right", header_style="bold", no_wrap=True
        )
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    return table
