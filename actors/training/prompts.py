"""Prompts for the target to answer: JSON lines in, tokenised and in a fixed order out."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from actors.training.errors import TrainingError

Encode = Callable[[str], Sequence[int]]
"""A user's message -> token ids of the whole conversation, ready for the answer."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """name: digest of category and text, by which a run that is resumed knows what is done.
    sampled: answered at T = 1, else greedily. quoted: so many of its last tokens are quoted from it
    (`quoting`), in place of an answer."""

    name: str
    category: str
    text: str
    sampled: bool = False
    quoted: int = 0

    @property
    def seed(self) -> int:
        return int(self.name[:15], 16)


def read_prompts(path: str | Path, sampled_share: float = 0.0, seed: int = 0) -> list[Prompt]:
    """Lines of {prompt, category?}, duplicates left out, shuffled within their category and then
    one of each category in turn, so that every prefix of the list is balanced; the same share of
    each category is `sampled`. Raises TrainingError with the line's number."""
    groups: dict[str, dict[str, str]] = {}
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        category, text = _fields(path, number, line)
        digest = hashlib.sha256(f"{category}\0{text}".encode()).hexdigest()[:24]
        groups.setdefault(category, {})[digest] = text
    if not groups:
        raise TrainingError(f"{path} has no prompts", "prompts")
    columns: list[list[Prompt]] = []
    for category, texts in sorted(groups.items()):
        names = sorted(texts)
        random.Random(seed).shuffle(names)
        columns.append(
            [
                Prompt(name, category, texts[name], every(i, sampled_share))
                for i, name in enumerate(names)
            ]
        )
    return [p for row in zip_longest(*columns) for p in row if p is not None]


def tokenised(
    prompts: Sequence[Prompt], encode: Encode, max_tokens: int, count: int | None = None
) -> Iterator[tuple[Prompt, tuple[int, ...]]]:
    """Lazily, the first `count`; prompts longer than `max_tokens` tokens are left out."""
    found = 0
    for prompt in prompts:
        if count is not None and found >= count:
            return
        ids = tuple(encode(prompt.text))
        if len(ids) <= max_tokens:
            found += 1
            yield prompt, ids


def every(i: int, share: float) -> bool:
    """Whether number i is among a `share` of all, spread evenly."""
    return int((i + 1) * share) > int(i * share)


def _lines(path: str | Path) -> Iterator[str]:
    try:
        with Path(path).open(encoding="utf-8") as file:
            yield from file
    except (OSError, UnicodeDecodeError) as error:
        raise TrainingError(f"cannot read prompts from {path}: {error}", "prompts") from error


def _fields(path: str | Path, number: int, line: str) -> tuple[str, str]:
    """Category and text of a line."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise TrainingError(f"{path}:{number} is not JSON: {error}", "prompts") from error
    text = record.get("prompt") if isinstance(record, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise TrainingError(f'{path}:{number} has no text under "prompt"', "prompts")
    return str(record.get("category") or "all"), text
