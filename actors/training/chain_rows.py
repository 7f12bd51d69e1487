"""Where the chains of a step begin: in answers, and in a stretch of their prompts, whose law is as
exact though the text is somebody else's."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from actors.training.attend import AnchorSpan
from actors.training.examples import Example

TEMPLATE = 32
"""First tokens of a prompt that a chat template gives all of them: nothing to learn from."""
PART = 4
"""Of a prompt's positions, one in so many at most is begun at: a short one is not worth as much as
its answer, and the context of a long one is paid for anyway."""


@dataclass(frozen=True, slots=True)
class Starts:
    """Of n chains. spans: anchors and context rows of each example: rows 0 … length-3, those
    before its last anchor. anchors: positions. tokens: of all examples, flat; at: where each
    anchor's is among them. rows: where its features are among all examples' rows. left: tokens of
    its text after it. weights: of their losses. All [n] but tokens."""

    spans: list[AnchorSpan]
    anchors: torch.Tensor
    tokens: torch.Tensor
    at: torch.Tensor
    rows: torch.Tensor
    left: torch.Tensor
    weights: torch.Tensor


def choose(example: Example, answers: int, prompts: int, rng: random.Random) -> torch.Tensor:
    """Positions, ascending, that have a token after them: at most `answers` of the answer, and
    `prompts` of the prompt, a PART of it at most: up to half of them where `met_again`, for there
    copying is learned, the others in a row."""
    first, count = example.prompt_len, example.anchors
    if count <= answers:
        own = torch.arange(first, first + count)
    else:
        own = torch.tensor(sorted(rng.sample(range(first, first + count), answers)))
    room = first - TEMPLATE
    prompts = min(prompts, room // PART)
    if prompts <= 0:
        return own
    again = [i for i in met_again(example.tokens[:first]) if i >= TEMPLATE]
    again = rng.sample(again, min(len(again), prompts // 2))
    row = prompts - len(again)
    start = TEMPLATE + rng.randrange(max(1, room - row + 1))
    found = sorted({*again, *range(start, min(first, start + row))})
    return torch.cat((torch.tensor(found), own))


def met_again(tokens: torch.Tensor) -> list[int]:
    """Positions, ascending, whose token and the one before it stood together earlier."""
    pairs = tokens[:-1] * (int(tokens.max()) + 1) + tokens[1:]
    order = torch.argsort(pairs, stable=True)
    ordered = pairs[order]
    found: list[int] = (order[1:][ordered[1:] == ordered[:-1]] + 1).sort().values.tolist()
    return found


def lay_out(
    examples: Sequence[Example], chosen: Sequence[torch.Tensor], prompt_weight: float = 1.0
) -> Starts:
    """chosen: the anchors of each example. prompt_weight: of a chain that begins in a prompt."""
    spans: list[AnchorSpan] = []
    at, rows, left, weights = (list[torch.Tensor]() for _ in range(4))
    start = context = token = row = 0
    for example, anchors in zip(examples, chosen, strict=True):
        count, length = int(anchors.shape[0]), example.length
        spans.append(AnchorSpan(start, start + count, context, length - 2, anchors))
        at.append(token + anchors)
        rows.append(row + anchors)
        left.append(length - 1 - anchors)
        weights.append(torch.where(anchors < example.prompt_len, prompt_weight, 1.0))
        start, context = start + count, context + length - 2
        token, row = token + length, row + length - 1
    return Starts(
        spans,
        torch.cat(list(chosen)),
        torch.cat([e.tokens for e in examples]),
        torch.cat(at),
        torch.cat(rows),
        torch.cat(left),
        torch.cat(weights),
    )
