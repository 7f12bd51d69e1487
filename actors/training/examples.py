"""Answers as a trainer reads them, and the order it reads them in."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import torch

from actors.training.errors import TrainingError
from actors.training.store import read_answers, read_header, read_index


@dataclass(frozen=True, slots=True)
class Example:
    """One answer of T tokens. tokens: int64 [T]; features: bf16 [T - 1, taps · hidden], of which
    row j belongs to token j. Rows prompt_len … T - 2 have an answer's token after them."""

    tokens: torch.Tensor
    prompt_len: int
    category: str
    features: torch.Tensor

    def to(self, device: str) -> Example:
        if device == "cpu":
            return self
        return replace(self, tokens=self.tokens.to(device), features=self.features.to(device))

    @property
    def length(self) -> int:
        return int(self.tokens.shape[0])

    @property
    def anchors(self) -> int:
        """Answer tokens with another one after them: each may be the newest committed one."""
        return self.length - 1 - self.prompt_len


def load_examples(folder: str | Path, *, greedy_only: bool = False) -> list[Example]:
    """All answers of a store that have two tokens or more. The features stay in the files'
    mapped pages. Raises TrainingError."""
    path = Path(folder)
    read_header(path)
    found = [
        Example(torch.tensor(a.tokens), a.prompt_len, a.category, a.features)
        for shard in read_index(path)
        for a in read_answers(path, shard)
        if not (greedy_only and a.sampled)
    ]
    found = [e for e in found if e.anchors >= 1]
    if not found:
        raise TrainingError(f"{folder} has no answers of two tokens", "output")
    return found


def batches(
    examples: Sequence[Example], anchors: int, rng: random.Random
) -> Iterator[list[Example]]:
    """One pass in random order: examples with at least `anchors` anchors together."""
    order = list(examples)
    rng.shuffle(order)
    batch: list[Example] = []
    held = 0
    for example in order:
        batch.append(example)
        held += example.anchors
        if held >= anchors:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def balanced(examples: Sequence[Example], count: int) -> list[Example]:
    """The first `count`, one of each category in turn."""
    groups: dict[str, list[Example]] = {}
    for example in examples:
        groups.setdefault(example.category, []).append(example)
    columns = [groups[name] for name in sorted(groups)]
    return [e for row in zip_longest(*columns) for e in row if e is not None][:count]


def prompt_texts(examples: Sequence[Example], share: float, first: int = 32) -> list[Example]:
    """Prompts as if they were answers, for a share of the examples: the target's law at each of
    their positions is as exact, though the text is somebody else's. Their first tokens, which a
    template gives all of them, are left out."""
    long = [e for e in examples if e.prompt_len >= first + 8]
    return [
        Example(e.tokens[: e.prompt_len], first, e.category, e.features[: e.prompt_len - 1])
        for i, e in enumerate(long)
        if int((i + 1) * share) > int(i * share)
    ]
