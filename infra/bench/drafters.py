"""Acceptance length of the shipped drafters, exactly: the serving drafter at every position of what
the target writes greedily, and real runs at T = 1.

python infra/bench/drafters.py --spec-bench question.jsonl --train DIR [--model smollm2]

DIR is the output folder of `pilotfish train`: its validation answers are replayed, and its curves
become the picture. Results go to infra/bench/results/drafters.md and .png. With `--figures FILE`
only drafters whose weights have changed since are measured again.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import math
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from actors.contracts import Drafter
from actors.drafters.config import DrafterConfig
from actors.drafters.shipped import METHODS, catalogue
from actors.drafters.table import build_drafter
from actors.engine.core import Engine, drain
from actors.engine.sequence import EngineRequest
from actors.exchange.local import LocalPort
from actors.sampling.params import SamplingParams
from actors.training.acceptance import lengths, survival
from actors.training.answering import AnswerOptions, answering_engine
from actors.training.examples import Example, balanced, load_examples
from actors.training.mechanisms import default_taps
from actors.training.recorder import Recorder
from actors.training.replaying import right_drafts
from cluster.models.paths import cache_root
from cluster.models.resolve import resolve
from cluster.training.command import encoder

RESULTS = Path(__file__).parent / "results"
MEASURED_ELSEWHERE = "## End to end"
"""From this title on the page is other commands', and stays."""
CATEGORIES = ("summarization", "rag", "translation", "qa", "math_reasoning", "coding")
DEPTH, TOKENS = 6, 64
BESIDE = ("eagle3", "draft_model")
"""The best ones are also run with suffix decoding."""
COLOURS = {
    "dspark": "#0072B2",
    "dflash": "#D55E00",
    "eagle3": "#009E73",
    "mtp": "#CC79A7",
    "draft_model": "#56B4E9",
}
TRAINED = {method: mechanism for mechanism, method in METHODS.items()}
"""What training calls a method, where that has another name."""


def spec_bench(path: Path) -> list[tuple[str, str]]:
    """The first two prompts of each category, (category, first turn)."""
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    found: list[tuple[str, str]] = []
    for category in CATEGORIES:
        turns = [r["turns"][0] for r in records if r["category"] == category]
        found += [(category, turn) for turn in turns[:2]]
    return found


def answers(path: str, prompts: Sequence[tuple[str, str]], taps: tuple[int, ...]) -> list[Example]:
    """What the target writes greedily, with its hidden states."""
    recorder, encode = Recorder(taps), encoder(path)
    engine = _engine(path, recorder)
    for i, (_, text) in enumerate(prompts):
        greedy = SamplingParams(temperature=0.0, max_tokens=TOKENS)
        engine.add(EngineRequest(str(i), tuple(encode(text)), greedy))
    for event in drain(engine):
        if event.error is not None:
            raise event.error
    ended = sorted(recorder.take(), key=lambda r: int(r.request_id))
    return [
        Example(torch.tensor(r.tokens), r.prompt_len, prompts[int(r.request_id)][0], r.features)
        for r in ended
        if len(r.tokens) - r.prompt_len >= 2
    ]


def runs(
    path: str, prompts: Sequence[tuple[str, str]], drafter: Drafter, temperature: float
) -> list[str]:
    """Cells of acceptance length of runs with fixed seeds and whole blocks: all, by category."""
    port, encode = LocalPort(drafter), encoder(path)
    engine = _engine(path, port, DEPTH)
    for i, (_, text) in enumerate(prompts):
        params = SamplingParams(temperature=temperature, seed=i, max_tokens=TOKENS)
        engine.add(EngineRequest(str(i), tuple(encode(text)), params))
    counts: dict[str, list[int]] = {}
    for event in drain(engine):
        if event.error is not None:
            raise event.error
        if not event.first and event.tokens:
            for name in ("all", prompts[int(event.request_id)][0]):
                tally = counts.setdefault(name, [0, 0])
                tally[0] += len(event.tokens)
                tally[1] += 1
    found = {name: tokens / rounds for name, (tokens, rounds) in counts.items()}
    return [f"{found.get(c, math.nan):.2f}" for c in ("all", *CATEGORIES)]


def _engine(path: str, port: Any, depth: int = 0) -> Engine:
    options = AnswerOptions(
        max_prompt=2048,
        max_tokens=TOKENS,
        sequences=12,
        compile_cache=str(cache_root() / "compiled"),
    )
    engine = answering_engine(path, port, options)
    engine.plan.snapshot.fallback.depth = depth
    return engine


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    line = "| " + " | ".join(header) + " |"
    rule = "| --- |" + " ---: |" * (len(header) - 1)
    return [line, rule, *("| " + " | ".join(row) + " |" for row in rows), ""]


def replayed(held: Sequence[tuple[str, Sequence[int]]]) -> tuple[list[str], list[str], list[str]]:
    """Cells: acceptance length at D = 1 … 6; at 6 by category; survival by position."""
    found = lengths(held, DEPTH)
    depths = [f"{found[str(d)]:.2f}" for d in range(1, DEPTH + 1)]
    categories = [f"{v:.2f}" for k, v in sorted(found.items()) if not k.isdecimal()]
    return depths, categories, [f"{s:.3f}" for s in survival(held, DEPTH)]


def curve(folder: Path, name: str) -> list[list[str]]:
    """Rows of the curve, each with twice the positions of the one before, and the last."""
    file = folder / TRAINED.get(name, name) / "curve.jsonl"
    if not file.exists():
        return []
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    kept, least = list[dict[str, Any]](), 0
    for line in lines:
        if line["positions"] >= least or line is lines[-1]:
            kept.append(line)
            least = 2 * line["positions"]
    return [
        [
            name,
            f"{line['positions']:,}",
            f"{line['cpu_s']:.0f}",
            *(f"{line['acceptance_length'][str(d)]:.2f}" for d in (1, 2, DEPTH)),
        ]
        for line in kept
    ]


def picture(folder: Path, mechanisms: Sequence[str]) -> None:
    """Acceptance length over answer positions trained on and over CPU minutes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for name in mechanisms:
        file = folder / TRAINED.get(name, name) / "curve.jsonl"
        if not file.exists():
            continue
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        best = [line["acceptance_length"][str(DEPTH)] for line in lines]
        colour = COLOURS.get(name)
        axes[0].plot([n["positions"] / 1e3 for n in lines], best, "o-", color=colour, label=name)
        axes[1].plot([n["cpu_s"] / 60 for n in lines], best, "o-", color=colour, label=name)
    axes[0].set(xlabel="answer positions trained on, thousands", ylabel="acceptance length, D = 6")
    axes[1].set(xlabel="CPU minutes of training")
    for axis in axes:
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(RESULTS / "drafters.png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec-bench", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--valid", type=int, default=48, help="Validation answers to replay.")
    parser.add_argument("--figures", type=Path, help="JSON of what was measured before.")
    options = parser.parse_args()
    path = str(resolve(options.model))
    prompts = spec_bench(options.spec_bench)
    layers = json.loads((Path(path) / "config.json").read_text("utf-8"))["num_hidden_layers"]
    taps = default_taps(int(layers))
    sets = {
        f"validation prompts ({options.valid})": balanced(
            load_examples(options.train / "validation", greedy_only=True), options.valid
        ),
        "12 Spec-Bench prompts": answers(path, prompts, taps),
    }
    lines = [
        "# Acceptance length of the shipped drafters",
        "",
        f"`python infra/bench/drafters.py --spec-bench {options.spec_bench.name} --train "
        f"{options.train.name} --valid {options.valid}` on {datetime.date.today()}, torch "
        f"{metadata.version('torch')}, transformers {metadata.version('transformers')}.",
        "Tokens a round, the target's own token among them; 1 is standard decode. Greedy figures",
        "are exact replays: the serving drafter at every position of what the target writes.",
        "",
    ]
    known = _known(options.figures)
    found = {
        mechanism: _once(known, mechanism, folder, path, sets, prompts, taps)
        for (mechanism, _), folder in sorted(catalogue().items())
    }
    if options.figures:
        options.figures.write_text(json.dumps(known), "utf-8")
    for title, examples in sets.items():
        categories = sorted({e.category for e in examples})
        depths, by_category, positions = (
            [[name, *measured[title][i]] for name, measured in found.items()] for i in range(3)
        )
        heads = [f"D = {d}" for d in range(1, DEPTH + 1)]
        lines += [f"## {title}, greedy", "", *table(["drafter", *heads], depths)]
        lines += ["By category, D = 6:", "", *table(["drafter", *categories], by_category)]
        lines += ["The first k drafts right:", ""]
        lines += table(["drafter", *(f"k = {k}" for k in range(1, DEPTH + 1))], positions)
    rows = [[name, *measured["sampled"]] for name, measured in found.items()]
    lines += ["## 12 Spec-Bench prompts, T = 1 (`coupled`), D = 6", ""]
    lines += table(["drafter", "all", *CATEGORIES], rows)
    rows = [[n, *m["with suffix"]] for n, m in found.items() if "with suffix" in m]
    lines += ["## 12 Spec-Bench prompts, greedy, with suffix decoding beside it, D = 6", ""]
    lines += table(["drafter", "all", *CATEGORIES], rows)
    lines += ["## Over training (a part of the validation answers, greedy)", ""]
    heads = ["drafter", "answer positions", "CPU s", "D = 1", "D = 2", f"D = {DEPTH}"]
    lines += table(heads, [row for name in found for row in curve(options.train, name)])
    lines += ["![acceptance length over training](drafters.png)", ""]
    page = RESULTS / "drafters.md"
    _, title, others = page.read_text("utf-8").partition(MEASURED_ELSEWHERE)
    page.write_text("\n".join(lines) + ("\n" + title + others if title else ""), "utf-8")
    picture(options.train, list(found))


def _known(file: Path | None) -> dict[str, Any]:
    if file is None or not file.exists():
        return {}
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


def _once(
    known: dict[str, Any],
    mechanism: str,
    folder: Path,
    path: str,
    sets: dict[str, list[Example]],
    prompts: Sequence[tuple[str, str]],
    taps: tuple[int, ...],
) -> dict[str, Any]:
    """Cells of one drafter by table; `known`, by the digest of its weights, is added to."""
    with (folder / "model.safetensors").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest not in known:
        drafter, cells = _drafter(mechanism, folder, path), dict[str, Any]()
        for title, examples in sets.items():
            right = right_drafts(drafter, examples, taps, DEPTH)
            cells[title] = replayed([(e.category, r) for e, r in zip(examples, right, strict=True)])
        cells["sampled"] = runs(path, prompts, drafter, 1.0)
        if mechanism in BESIDE:
            both = _drafter(mechanism, folder, path, suffix=True)
            cells["with suffix"] = runs(path, prompts, both, 0.0)
        known[digest] = cells
    measured: dict[str, Any] = known[digest]
    return measured


def _drafter(mechanism: str, folder: Path, target: str, *, suffix: bool = False) -> Drafter:
    return build_drafter(
        DrafterConfig(
            mechanism,
            model=str(folder),
            target=target,
            num_speculative_tokens=DEPTH,
            target_tokenizer=target,
            enable_suffix_decoding=suffix,
            compile_cache=str(cache_root() / "compiled"),
        )
    )


if __name__ == "__main__":
    main()
