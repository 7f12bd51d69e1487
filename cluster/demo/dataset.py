"""Prompts of the demo: this project's own, or any file in Spec-Bench format."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path


class DatasetError(Exception):
    """The file is not what `--dataset` takes; says which line and why."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question: its category and its first turn."""

    id: str
    category: str
    text: str


def load(path: Path | None, limit: int | None = None) -> list[Prompt]:
    """Prompts of `path`, JSON lines with question_id, category and turns; None: the built-in
    ones. With a limit, categories take turns, so that a few prompts still cover them all."""
    if path is None:
        text = resources.files("cluster.demo").joinpath("prompts.jsonl").read_text("utf-8")
    else:
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DatasetError(f"cannot read {path}: {error}") from error
    prompts = [_parse(line, n) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not prompts:
        raise DatasetError(f"{path}: no prompts")
    return prompts if limit is None else _spread(prompts, limit)


def _parse(line: str, number: int) -> Prompt:
    try:
        record = json.loads(line)
        turns = record["turns"]
        prompt = Prompt(str(record["question_id"]), str(record["category"]), turns[0])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DatasetError(
            f"line {number}: expected question_id, category and turns (Spec-Bench): {error!r}"
        ) from error
    if not isinstance(prompt.text, str) or not prompt.text.strip():
        raise DatasetError(f"line {number}: the first turn is empty or not text")
    return prompt


def _spread(prompts: list[Prompt], limit: int) -> list[Prompt]:
    queues: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        queues.setdefault(prompt.category, []).append(prompt)
    chosen: list[Prompt] = []
    while len(chosen) < limit and any(queues.values()):
        for queue in queues.values():
            if queue and len(chosen) < limit:
                chosen.append(queue.pop(0))
    order = {id(p): i for i, p in enumerate(prompts)}
    return sorted(chosen, key=lambda p: order[id(p)])
