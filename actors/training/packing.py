"""A step's anchors: where they stand, what follows them, and which law each draft is held
against. The same for blocks and chains."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from actors.training.attend import AnchorSpan
from actors.training.examples import Example
from actors.training.laws import TargetLaw


@dataclass(frozen=True, slots=True)
class Packed:
    """spans: anchors and context rows of each answer: rows 0 … length-3, those before its last
    anchor. anchors: positions, [anchors]. tokens: [anchors, drafts + 1], each anchor and what
    follows it. rows: of the laws, and valid: whether the answer goes so far, both
    [anchors, drafts]."""

    spans: list[AnchorSpan]
    anchors: torch.Tensor
    tokens: torch.Tensor
    rows: torch.Tensor
    valid: torch.Tensor


def choose_anchors(example: Example, most: int, rng: random.Random) -> torch.Tensor:
    """Positions of at most so many answer tokens that have one after them, ascending."""
    first, count = example.prompt_len, example.anchors
    if count <= most:
        return torch.arange(first, first + count)
    return torch.tensor(sorted(rng.sample(range(first, first + count), most)))


def all_anchors(example: Example) -> torch.Tensor:
    return torch.arange(example.prompt_len, example.prompt_len + example.anchors)


def pack(examples: Sequence[Example], chosen: Sequence[torch.Tensor], drafts: int) -> Packed:
    """chosen: the anchors of each example."""
    spans: list[AnchorSpan] = []
    tokens, rows, valid = list[torch.Tensor](), list[torch.Tensor](), list[torch.Tensor]()
    start = context = laws = 0
    for example, anchors in zip(examples, chosen, strict=True):
        count, length = int(anchors.shape[0]), example.length
        spans.append(AnchorSpan(start, start + count, context, length - 2, anchors))
        reach = anchors[:, None] + torch.arange(drafts + 1)
        tokens.append(example.tokens[reach.clamp(max=length - 1)])
        row = reach[:, :-1]
        valid.append(row <= length - 2)
        rows.append(laws + (row - example.prompt_len).clamp(max=example.anchors - 1))
        start, context, laws = start + count, context + length - 2, laws + example.anchors
    return Packed(
        spans, torch.cat(list(chosen)), torch.cat(tokens), torch.cat(rows), torch.cat(valid)
    )


def answer_states(examples: Sequence[Example], law: TargetLaw, hidden: int) -> torch.Tensor:
    """What the target's head read after each answer token but the last, [anchors of all, hidden].
    The last `hidden` features are the target's last state."""
    return law.states(torch.cat([e.features[e.prompt_len :, -hidden:] for e in examples]))


def context_rows(examples: Sequence[Example], columns: slice) -> tuple[torch.Tensor, torch.Tensor]:
    """Features fp32 [context rows, …] and positions [context rows] of what stands before the last
    anchor of each answer."""
    features = torch.cat([e.features[: e.length - 2, columns] for e in examples]).float()
    return features, torch.cat([torch.arange(e.length - 2) for e in examples])
