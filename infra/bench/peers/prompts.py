"""The twelve prompts of the peer figures, picked from a Spec-Bench file that you have.

python infra/bench/peers/prompts.py question.jsonl twelve.jsonl

Two each of six kinds, the first ones of the file, so that everybody picks the same. The file is
the published one (hemingkx/Spec-Bench, data/spec_bench/question.jsonl); none of it is kept here.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from cluster.bench.dataset import Prompt, load
from cluster.bench.errors import DatasetError

KINDS = ("summarization", "rag", "translation", "qa", "math_reasoning", "coding")
EACH = 2


def pick(path: Path) -> list[Prompt]:
    """Raises DatasetError when the file lacks a kind."""
    prompts = load(path).prompts
    chosen: list[Prompt] = []
    for kind in KINDS:
        found = [prompt for prompt in prompts if prompt.category == kind][:EACH]
        if len(found) < EACH:
            raise DatasetError(f"{path}: {len(found)} prompts of {kind}, {EACH} are wanted")
        chosen += found
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spec_bench", type=Path)
    parser.add_argument("output", type=Path)
    given = parser.parse_args()
    try:
        chosen = pick(given.spec_bench)
    except DatasetError as error:
        sys.exit(f"error: {error}")
    lines = [json.dumps(_record(prompt), ensure_ascii=False) for prompt in chosen]
    given.output.write_text("\n".join(lines) + "\n", "utf-8")
    print(f"{len(lines)} prompts in {given.output}")


def _record(prompt: Prompt) -> dict[str, object]:
    turns = [content for _, content in prompt.messages]
    return {"question_id": prompt.id, "category": prompt.category, "turns": turns}


if __name__ == "__main__":
    main()
