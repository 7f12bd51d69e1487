"""A study's outcomes as a table, as JSON, and as a picture of D and tokens over time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cluster.bench.table import show_whole
from cluster.simulate.legs import POLICY, STANDARD
from cluster.simulate.run import Outcome
from cluster.simulate.study import Study, StudyError

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")


def show(study: Study, outcomes: Sequence[Outcome], console: Console) -> None:
    heads, rows = table(study, outcomes)
    shown = Table(title=escape(study.title), title_justify="left", pad_edge=False, box=None)
    for i, head in enumerate(heads):
        side: Any = "left" if i == 0 else "right"
        shown.add_column(head, justify=side, header_style="bold", no_wrap=True)
    for row in rows:
        shown.add_row(*(escape(cell) for cell in row))
    show_whole(console, shown)
    for line in notes(study, outcomes):
        console.print(escape(line), highlight=False, soft_wrap=True)


def table(study: Study, outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """Text; `x` is over standard decode where that was simulated."""
    plain = next((o.goodput for o in outcomes if o.leg == STANDARD), 0.0)
    phases = [f"from {phase.start_s:g} s" for phase in study.scenario.phases]
    heads = ["leg", "tok/s", "x", *(phases if len(phases) > 1 else ()), "AL", "D", "late"]
    heads += ["waited", "drafters busy", "TTFT p50 / p95 ms", "TPOT p50 / p95 ms", "done"]
    rows = []
    for o in outcomes:
        busy = ", ".join(f"{name} {share:.0%}" for name, share in o.busy.items() if share)
        rows.append(
            [
                o.leg,
                f"{o.goodput:.1f}",
                f"{o.goodput / plain:.2f}" if plain else "–",
                *([f"{rate:.1f}" for rate in o.phases] if len(phases) > 1 else ()),
                f"{o.acceptance_length:.2f}",
                f"{o.depth:.2f}",
                str(o.late),
                f"{o.waited:.1%}",
                busy or "–",
                _pair(o.ttft_p50_s, o.ttft_p95_s),
                _pair(o.tpot_p50_s, o.tpot_p95_s),
                f"{o.finished} of {o.arrived}",
            ]
        )
    return heads, rows


def notes(study: Study, outcomes: Sequence[Outcome]) -> list[str]:
    scenario = study.scenario
    lines = [
        f"{scenario.verifiers} verifier(s), {scenario.duration_s:g} s simulated in "
        f"{sum(o.cpu_s for o in outcomes):.1f} s of CPU, seed {scenario.seed}"
    ]
    fixed = [o for o in outcomes if o.leg != POLICY]
    policy = next((o for o in outcomes if o.leg == POLICY), None)
    if policy is not None and fixed:
        best = max(fixed, key=lambda o: o.goodput)
        lines.append(
            f"the policy has {policy.goodput / best.goodput:.3f} of the best fixed choice over the "
            f"whole run ({best.leg})"
        )
        for i, phase in enumerate(scenario.phases if len(scenario.phases) > 1 else ()):
            most, leg = max((o.phases[i], o.leg) for o in fixed)
            share = policy.phases[i] / most if most else 0.0
            lines.append(f"  from {phase.start_s:g} s: {share:.3f} of {leg}")
    return lines


def as_json(study: Study, outcomes: Sequence[Outcome]) -> str:
    figures = {
        "title": study.title,
        "scenario": asdict(study.scenario),
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    return json.dumps(_plain(figures), indent=1, allow_nan=False)


def draw(study: Study, outcomes: Sequence[Outcome], path: Path) -> None:
    """Tokens a second, mean D, and the policy's mechanisms over time. Raises StudyError where it
    cannot be written."""
    from matplotlib.figure import Figure

    shown = _shown(outcomes)
    mixed = next((o for o in shown if o.leg == POLICY and o.ways_at), None)
    figure = Figure(figsize=(10.0, 8.0 if mixed else 6.4), layout="constrained")
    panels = figure.subplots(3 if mixed else 2, 1, sharex=True)
    for i, o in enumerate(shown):
        times = _times(study, len(o.tokens_at))
        colour = {STANDARD: "#888888", POLICY: "#000000"}.get(o.leg, _COLOURS[i % len(_COLOURS)])
        width = 2.0 if o.leg == POLICY else 1.0
        panels[0].plot(times, o.tokens_at, color=colour, linewidth=width, label=o.leg)
        panels[1].step(times, o.depth_at, color=colour, linewidth=width, where="mid")
    panels[0].set(ylabel="tokens a second")
    panels[0].legend(fontsize=8, ncols=4)
    panels[1].set(ylabel="mean D of a round")
    if mixed:
        _mechanisms(panels[2], study, mixed)
    for panel in panels:
        panel.grid(alpha=0.3)
        for phase in study.scenario.phases[1:]:
            panel.axvline(phase.start_s, color="#999999", linewidth=0.8, linestyle=":")
    panels[-1].set(xlabel="seconds")
    figure.suptitle(study.title, fontsize=10)
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise StudyError(f"--plot: {path}: {error.strerror}") from None


def _mechanisms(panel: Any, study: Study, policy: Outcome) -> None:
    """Whose blocks the policy verified, as shares of the rows that had one."""
    ways = policy.ways_at
    sums = [max(1, sum(counts)) for counts in zip(*ways.values(), strict=True)]
    shares = [[n / total for n, total in zip(ways[way], sums, strict=True)] for way in ways]
    times = _times(study, len(sums))
    panel.stackplot(times, shares, labels=list(ways), colors=_COLOURS, step="mid")
    panel.set(ylabel="policy: share by way", ylim=(0.0, 1.0))
    panel.legend(fontsize=8, loc="upper right")


def _times(study: Study, slices: int) -> list[float]:
    """Their middles."""
    return [study.scenario.duration_s * (k + 0.5) / slices for k in range(slices)]


def _shown(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Standard decode, the policy, and the five best fixed choices."""
    named = [o for o in outcomes if o.leg in (STANDARD, POLICY)]
    fixed = sorted((o for o in outcomes if o not in named), key=lambda o: -o.goodput)
    return [*fixed[:5], *named]


def _pair(half: float | None, tail: float | None) -> str:
    return " / ".join("–" if value is None else f"{1e3 * value:.1f}" for value in (half, tail))


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if value == float("inf") else value
