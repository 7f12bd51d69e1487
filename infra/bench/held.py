"""What measurements of learned drafters share: texts that the target wrote greedily, with its
hidden states, and the shipped drafters. What is counted on them are exact replays, never times.

    --spec-bench FILE   Spec-Bench's question.jsonl, of which the 12 prompts are taken
    --train DIR         output folder of `pilotfish train`: its validation answers
    --keep FILE         where the target's answers to the 12 prompts are kept between scripts
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from drafters import answers, spec_bench

from actors.contracts import Drafter
from actors.drafters.config import DrafterConfig
from actors.drafters.shipped import catalogue
from actors.drafters.table import LEARNED, build_drafter
from actors.training.acceptance import replay
from actors.training.examples import Example, balanced, load_examples
from actors.training.mechanisms import default_taps
from cluster.bench.stats import Pair, Ratio, ratio
from cluster.models.resolve import resolve

TWELVE = "12 Spec-Bench prompts"


@dataclass(frozen=True, slots=True)
class Held:
    """model: the target's folder. taps: of the examples' features. sets: by title. shipped: folders
    of the shipped drafters, by mechanism."""

    model: str
    taps: tuple[int, ...]
    sets: dict[str, list[Example]]
    shipped: dict[str, Path]

    def config(self, mechanism: str, depth: int, **changes: Any) -> DrafterConfig:
        """Of the shipped drafter of that mechanism; changes: other fields."""
        return DrafterConfig(
            mechanism,
            model=str(self.shipped[mechanism]),
            target=self.model,
            target_tokenizer=self.model,
            num_speculative_tokens=depth,
            threads=1,
            **changes,
        )

    def drafter(self, mechanism: str, depth: int, **changes: Any) -> Drafter:
        return build_drafter(self.config(mechanism, depth, **changes))


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(description or "").split("\n\n")[0])
    parser.add_argument("--spec-bench", type=Path, required=True)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--valid", type=int, default=48, help="Validation answers; 0 is none.")
    parser.add_argument("--mechanisms", nargs="+", choices=sorted(LEARNED), default=sorted(LEARNED))
    return parser


def hold(options: argparse.Namespace) -> Held:
    torch.set_num_threads(1)
    path = str(resolve(options.model))
    layers = json.loads((Path(path) / "config.json").read_text("utf-8"))["num_hidden_layers"]
    taps = default_taps(int(layers))
    sets = {TWELVE: _twelve(options, path, taps)}
    if options.valid:
        valid = load_examples(options.train / "validation", greedy_only=True)
        sets[f"{options.valid} validation prompts"] = balanced(valid, options.valid)
    found = {mechanism: folder for (mechanism, _), folder in catalogue().items()}
    return Held(path, taps, sets, {m: found[m] for m in options.mechanisms if m in found})


def _twelve(options: argparse.Namespace, path: str, taps: tuple[int, ...]) -> list[Example]:
    if options.keep and options.keep.exists():
        kept = torch.load(options.keep, weights_only=True)
        return [Example(**fields) for fields in kept]
    made = answers(path, spec_bench(options.spec_bench), taps)
    if options.keep:
        names = ("tokens", "prompt_len", "category", "features")
        torch.save([{n: getattr(e, n) for n in names} for e in made], options.keep)
    return made


def against(
    depth: int, right: Sequence[Sequence[int]], base: Sequence[Sequence[int]], base_depth: int = 0
) -> Ratio | None:
    """Acceptance length over another drafter's on the same answers, resampled by answer. right,
    base: for each anchor of each answer, how many drafts in a row are right."""
    pairs = []
    for ours, theirs in zip(right, base, strict=True):
        a, b = replay(ours, depth), replay(theirs, base_depth or depth)
        pairs.append(Pair(a.tokens, a.rounds, b.tokens, b.rounds))
    return ratio(pairs)


def interval(found: Ratio | None, digits: int = 3) -> str:
    if found is None or found.low is None or found.high is None:
        return "–"
    return f"{found.value:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def heading(title: str, command: str, held: Held) -> list[str]:
    files = ", ".join(f"{m} {_digest(folder)}" for m, folder in held.shipped.items())
    return [
        f"## {title}",
        "",
        f"`{command}` on {datetime.date.today()}, torch {metadata.version('torch')}, transformers "
        f"{metadata.version('transformers')}, {multiprocessing.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.0f}. Drafters by the first digits of their file's sha256: {files}.",
        "",
    ]


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()[:8]
