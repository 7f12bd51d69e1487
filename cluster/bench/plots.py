"""The record as pictures, PNG bytes by name. Drawn off screen, with matplotlib's object interface.

Colours are those of Okabe and Ito, told apart by colour-blind readers as well. In every picture a
colour is a leg; a marker or a hatch is a load.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from cluster.bench.errors import BenchError
from cluster.bench.legs import STANDARD_NAME
from cluster.bench.pareto import front, points
from cluster.bench.record import Record
from cluster.bench.stats import Ratio, Spread
from cluster.bench.summary import LegFigures

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
_STANDARD = "#555555"
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_HATCHES = ("", "//", "..", "xx", "--", "\\\\", "++", "oo")
_FEW = 30  # drafted tokens; a rate of fewer says little, and looks it
_DPI = 120
_PARTS = ("draft", "wire", "verify", "sample", "rest")


def require() -> None:
    """Raises BenchError when there is nothing to draw with, before a long run and not after."""
    if find_spec("matplotlib") is None:
        raise BenchError("matplotlib is not installed: pip install 'pilotfish[bench]'")


def draw(record: Record) -> dict[str, bytes]:
    """Pictures in reading order; one that would be empty is left out."""
    figures, legs = record.figures, list(dict.fromkeys(f.leg for f in record.figures))
    colours = {leg: _COLOURS[i % len(_COLOURS)] for i, leg in enumerate(sorted(legs))}
    colours[STANDARD_NAME] = _STANDARD
    drafting = [f for f in figures if f.depth]
    drawn: dict[str, tuple[bool, Callable[[Any], None]]] = {
        "pareto": (bool(figures), lambda f: _pareto(f, figures, colours)),
        "ratios": (any(f.ratio_decode for f in figures), lambda f: _ratios(f, drafting, colours)),
        "inter_token_latency": (bool(figures), lambda f: _latency(f, figures, colours)),
        "acceptance_by_position": (
            any(f.positions for f in drafting),
            lambda f: _positions(f, drafting, colours),
        ),
        "acceptance_by_category": (
            any(f.categories for f in drafting),
            lambda f: _categories(f, drafting, colours),
        ),
        "time_split": (any(f.split for f in figures), lambda f: _split(f, figures)),
    }
    return {name: _png(paint) for name, (wanted, paint) in drawn.items() if wanted}


def _png(paint: Callable[[Any], None]) -> bytes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.8), layout="constrained")
    paint(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DPI)
    return buffer.getvalue()


def _pareto(figure: Any, figures: Sequence[LegFigures], colours: dict[str, str]) -> None:
    """Throughput per device against interactivity, a panel a temperature."""
    temperatures = sorted({f.temperature for f in figures})
    loads = list(dict.fromkeys(f.load for f in figures))
    panels = figure.subplots(1, len(temperatures), squeeze=False)[0]
    for panel, temperature in zip(panels, temperatures, strict=True):
        chosen = points(figures, temperature)
        best = front(chosen)
        panel.plot(
            [p.interactivity for p in best],
            [p.throughput for p in best],
            color="#999999",
            linewidth=1.0,
            linestyle="--",
            zorder=1,
        )
        for point in chosen:
            panel.scatter(
                point.interactivity,
                point.throughput,
                color=colours[point.leg],
                marker=_MARKERS[loads.index(point.load) % len(_MARKERS)],
                s=45,
                zorder=2,
            )
        panel.set_title(f"T = {temperature:g}")
        panel.set_xlabel("interactivity (tokens/s of one stream)")
        panel.set_ylabel("throughput (tokens/s per device)")
        panel.grid(alpha=0.3)
        panel.margins(0.12)
    _keys(figure, panels[-1], colours, loads)


def _keys(figure: Any, panel: Any, colours: dict[str, str], loads: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    shown = [
        Line2D([], [], color=colour, marker="o", linestyle="", label=leg)
        for leg, colour in colours.items()
    ]
    shown += [
        Line2D(
            [], [], color="#777777", marker=_MARKERS[i % len(_MARKERS)], linestyle="", label=load
        )
        for i, load in enumerate(loads)
    ]
    shown.append(Line2D([], [], color="#999999", linestyle="--", label="front"))
    figure.legend(handles=shown, loc="outside right upper", fontsize=8)


def _ratios(figure: Any, figures: Sequence[LegFigures], colours: dict[str, str]) -> None:
    """Ratios to standard decode with their intervals; 1 is as fast."""
    panels = figure.subplots(1, 2, sharey=True)
    kinds: tuple[tuple[str, Callable[[LegFigures], Ratio | None]], ...] = (
        ("one stream after its first token", lambda f: f.ratio_decode),
        ("all output", lambda f: f.ratio_output),
    )
    for panel, (title, of) in zip(panels, kinds, strict=True):
        for row, f in enumerate(figures):
            ratio = of(f)
            if ratio is None:
                continue
            panel.barh(row, ratio.value, color=colours[f.leg], height=0.6)
            if ratio.low is not None and ratio.high is not None:
                panel.plot([ratio.low, ratio.high], [row, row], color="black", linewidth=1.4)
        panel.axvline(1.0, color=_STANDARD, linewidth=1.0)
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("ratio to standard decode")
    panels[0].set_yticks(range(len(figures)), [_name(f) for f in figures], fontsize=8)
    panels[0].invert_yaxis()


def _latency(figure: Any, figures: Sequence[LegFigures], colours: dict[str, str]) -> None:
    """Inter-token latency, with the tail: commits come in bursts."""
    panel = figure.subplots()
    for row, f in enumerate(figures):
        if f.itl is not None:
            _quantiles(panel, row, f.itl, colours[f.leg])
    panel.set_yticks(range(len(figures)), [_name(f) for f in figures], fontsize=8)
    panel.invert_yaxis()
    panel.set_xlabel("inter-token latency: p50 (dot), p95 (bar), p99 (cross), ms")
    panel.grid(alpha=0.3, axis="x")


def _quantiles(panel: Any, row: int, spread: Spread, colour: str) -> None:
    p50, p95, p99 = (1e3 * value for value in (spread.p50, spread.p95, spread.p99))
    panel.plot([p50, p99], [row, row], color=colour, linewidth=1.2)
    panel.plot(p50, row, "o", color=colour)
    panel.plot(p95, row, "|", color=colour, markersize=14, markeredgewidth=2)
    panel.plot(p99, row, "x", color=colour, markersize=8)


def _positions(figure: Any, figures: Sequence[LegFigures], colours: dict[str, str]) -> None:
    panel = figure.subplots()
    loads = list(dict.fromkeys(f.load for f in figures))
    for f in figures:
        colour, marker = colours[f.leg], _MARKERS[loads.index(f.load) % len(_MARKERS)]
        panel.plot(
            [p.position + 1 for p in f.positions],
            [p.rate for p in f.positions],
            marker=marker,
            color=colour,
            linestyle="-" if f.temperature == 0 else ":",
            label=_name(f),
        )
        few = [p for p in f.positions if p.drafted < _FEW]
        panel.plot(
            [p.position + 1 for p in few],
            [p.rate for p in few],
            marker=marker,
            color=colour,
            markerfacecolor="white",
            linestyle="",
            zorder=3,
        )
    panel.set_ylim(-0.03, 1.03)
    panel.set_xlabel(f"position in the block (hollow: fewer than {_FEW} tokens drafted there)")
    panel.set_ylabel("accepted of drafted")
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.grid(alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=8)


def _categories(figure: Any, figures: Sequence[LegFigures], colours: dict[str, str]) -> None:
    panel = figure.subplots()
    names = sorted({c.category for f in figures for c in f.categories})
    loads = list(dict.fromkeys(f.load for f in figures))
    width = 0.8 / len(figures)
    for i, f in enumerate(figures):
        lengths = {c.category: c.acceptance_length for c in f.categories}
        panel.bar(
            [x + i * width for x in range(len(names))],
            [lengths.get(name) or 0.0 for name in names],
            width=width,
            color=colours[f.leg],
            edgecolor="white",
            linewidth=0.4,
            hatch=_HATCHES[loads.index(f.load) % len(_HATCHES)],
            alpha=1.0 if f.temperature == 0 else 0.6,
            label=_name(f),
        )
    ticks = [x + 0.4 - width / 2 for x in range(len(names))]
    panel.set_xticks(ticks, names, rotation=25, ha="right", fontsize=8)
    panel.axhline(1.0, color=_STANDARD, linewidth=1.0)
    panel.set_ylabel("acceptance length (tokens a forward pass)")
    figure.legend(loc="outside right upper", fontsize=8)


def _split(figure: Any, figures: Sequence[LegFigures]) -> None:
    panel = figure.subplots()
    shown = [f for f in figures if f.split is not None]
    left = [0.0] * len(shown)
    for part, colour in zip(
        _PARTS, ("#E69F00", "#56B4E9", "#0072B2", "#009E73", "#BBBBBB"), strict=True
    ):
        widths = [float(getattr(f.split, f"{part}_ms")) for f in shown]
        panel.barh(range(len(shown)), widths, left=left, color=colour, label=part, height=0.6)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    panel.set_yticks(range(len(shown)), [_name(f) for f in shown], fontsize=8)
    panel.invert_yaxis()
    panel.set_xlabel("a step of the engine (ms)")
    figure.legend(loc="outside right upper", fontsize=8)


def _name(figures: LegFigures) -> str:
    return f"{figures.leg}, T = {figures.temperature:g}, {figures.load}"
