"""Acceptance with features in fp8, one scale per 64 channels (ADR 0009), beside bf16.

python infra/bench/features.py --spec-bench question.jsonl --train DIR [--keep FILE]

Each shipped drafter is replayed on the same answers four times: with features as tapped and as its
first map has left them, each in bf16 and packed to fp8 and back, as they would arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from drafters import table
from held import Held, against, arguments, heading, hold, interval

from actors.drafters.learned.projection import feature_form
from actors.exchange import fp8
from actors.exchange.form import FeatureForm
from actors.training.acceptance import lengths
from actors.training.examples import Example
from actors.training.replaying import right_drafts

DEPTH = 6
FORMS = {
    "tapped, bf16": ("raw", "bf16"),
    "tapped, fp8": ("raw", "fp8"),
    "projected, bf16": ("auto", "bf16"),
    "projected, fp8": ("auto", "fp8"),
}
HEADS = (
    "drafter and form",
    "bytes a token",
    "D = 1",
    "D = 3",
    "D = 6",
    "over tapped bf16",
    "other",
)


def arriving(examples: Sequence[Example], form: FeatureForm, columns: list[int]) -> list[Example]:
    """The same answers with features as a drafter gets them."""
    made = []
    for example in examples:
        rows = form(example.features[:, columns])
        made.append(replace(example, features=fp8.unpack(rows) if form.dtype == "fp8" else rows))
    return made


def columns_of(wanted: Sequence[int], held: Held, width: int) -> list[int]:
    """Of recorded features [rows, width], those of the taps that are wanted."""
    size = width // len(held.taps)
    return [held.taps.index(tap) * size + i for tap in wanted for i in range(size)]


def rows_of(held: Held, mechanism: str, examples: Sequence[Example]) -> list[list[str]]:
    rows: list[list[str]] = []
    base: list[list[int]] = []
    for name, (shape, dtype) in FORMS.items():
        config = held.config(mechanism, DEPTH, feature_format=shape, feature_dtype=dtype)
        form = feature_form(config, "cpu", "")
        if shape == "auto" and form.projection is None:
            continue  # a drafter without a first map takes features as tapped
        drafter = held.drafter(mechanism, DEPTH, feature_format=shape, feature_dtype=dtype)
        taps = drafter.info.taps
        columns = columns_of(taps, held, examples[0].features.shape[1])
        formed = arriving(examples, form, columns)
        right = right_drafts(drafter, formed, taps, DEPTH)
        found = lengths([(e.category, r) for e, r in zip(examples, right, strict=True)], DEPTH)
        sent = form(examples[0].features[:1, columns])
        base = base or right
        flat = [(a, b) for x, y in zip(right, base, strict=True) for a, b in zip(x, y, strict=True)]
        rows.append(
            [
                f"{mechanism}, {name}",
                f"{sent.numel() * sent.element_size():,}",
                *(f"{found[d]:.3f}" for d in ("1", "3", "6")),
                interval(against(DEPTH, right, base)) if right is not base else "1",
                f"{sum(a != b for a, b in flat) / len(flat):.1%}",
            ]
        )
        print(" | ".join(rows[-1]), flush=True)
    return rows


@torch.inference_mode()
def main() -> None:
    options = arguments(__doc__).parse_args()
    held = hold(options)
    command = f"python infra/bench/features.py --spec-bench question.jsonl --valid {options.valid}"
    lines = heading("Features in fp8", command, held)
    lines += [
        "Acceptance length (tokens a round, the target's own among them) by exact greedy replays.",
        '"Over tapped bf16": of acceptance lengths at D = 6, 95% interval over answers. "Other":',
        "anchors at which another number of drafts is right.",
        "",
    ]
    for title, examples in held.sets.items():
        rows = [row for mechanism in held.shipped for row in rows_of(held, mechanism, examples)]
        lines += [f"### {title}", "", *table(HEADS, rows)]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
