"""The plan as a picture: the staircase of verification, and the acceptance length that pays.

Drawn off screen; colours of Okabe and Ito, told apart by colour-blind readers as well.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cluster.plan.answer import PlanError
from policies.codesign.drafting import Mechanism
from policies.codesign.gain import break_even, expected_tokens
from policies.codesign.plan import Plan, Question
from policies.codesign.roofline import forward

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
_ENDINGS = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Before anything is computed. Raises PlanError."""
    if find_spec("matplotlib") is None:
        raise PlanError("matplotlib is not installed: pip install 'pilotfish[bench]'")
    if path.suffix not in _ENDINGS:
        raise PlanError(f"--plot: {path.name} ends in none of {', '.join(_ENDINGS)}")
    if not path.resolve().parent.is_dir():
        raise PlanError(f"--plot: there is no folder {path.parent}")


def draw(question: Question, plan: Plan, path: Path) -> None:
    """Written to `path`. Raises PlanError where that cannot be."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    _stairs(left, question, plan)
    _even(right, question)
    device = question.machine.device
    figure.suptitle(
        f"{question.target.name} on {question.machine.tp} x {device.name}, "
        f"context {question.context}",
        fontsize=10,
    )
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise PlanError(f"--plot: {path}: {error.strerror}") from None


def _stairs(panel: Any, question: Question, plan: Plan) -> None:
    edges = [d for d in plan.facts.candidates if d]
    depths = range(min(64, max(16, *edges[:3], 0)) + 2)
    for i, sequences in enumerate(question.concurrencies):
        plain = forward(question.target, question.machine, sequences, 0, question.context).total
        ratios = [
            forward(question.target, question.machine, sequences, d, question.context).total / plain
            for d in depths
        ]
        panel.step(
            depths,
            ratios,
            where="mid",
            color=_COLOURS[i % len(_COLOURS)],
            label=f"{sequences} sequences",
        )
    for edge in edges[:3]:
        panel.axvline(edge, color="#999999", linewidth=0.8, linestyle=":")
    panel.set(xlabel="D (dotted: a tile is full)", ylabel="verify / standard step")
    panel.legend(fontsize=8)
    panel.grid(alpha=0.3)


def _even(panel: Any, question: Question) -> None:
    depths = range(1, 17)
    sequences = question.concurrencies[0]
    plain = forward(question.target, question.machine, sequences, 0, question.context).total
    for i, mechanism in enumerate(question.mechanisms):
        panel.plot(
            depths,
            [_pays(question, mechanism, sequences, d, plain) for d in depths],
            color=_COLOURS[i % len(_COLOURS)],
            label=mechanism.name,
        )
    panel.plot(
        depths,
        [expected_tokens(question.acceptance, d) for d in depths],
        color="#555555",
        linestyle="--",
        label=f"AL at acceptance {question.acceptance:g}",
    )
    panel.set(xlabel="D", ylabel=f"AL that pays, {sequences} sequence(s)")
    panel.legend(fontsize=8)
    panel.grid(alpha=0.3)


def _pays(
    question: Question, mechanism: Mechanism, sequences: int, depth: int, plain: float
) -> float:
    verify = forward(question.target, question.machine, sequences, depth, question.context).total
    draft = mechanism.draft_s(question.drafter_machine, sequences, depth, question.context, plain)
    return break_even(plain, draft, verify, question.rtt_s)
