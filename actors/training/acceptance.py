"""Acceptance length, exactly: what a drafter's blocks would be worth to a greedy target.

A greedy target writes one text whatever is drafted, so drafts at every position, each compared
with the text, give the rounds of a real run without running one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Rounds:
    """tokens: written in all; rounds: forwards of the target that wrote them."""

    tokens: int
    rounds: int

    @property
    def length(self) -> float:
        """Tokens a round, 1 … 1 + D."""
        return self.tokens / self.rounds if self.rounds else 0.0


def replay(right: Sequence[int], depth: int) -> Rounds:
    """right[i]: how many drafts in a row are right after the answer's token i, anchors 0 … n-1 of
    an answer of n + 1 tokens. A round with its anchor at i writes min(right, D) drafts and one
    token of the target's own, as many as there are."""
    at, rounds = 0, 0
    while at < len(right):
        at += min(right[at], depth) + 1
        rounds += 1
    return Rounds(len(right), rounds)


def lengths(answers: Iterable[tuple[str, Sequence[int]]], depth: int) -> dict[str, float]:
    """Acceptance length at each D = 1 … depth over all answers, keyed "D"; and at the largest by
    category, keyed "category"."""
    held = list(answers)
    out: dict[str, float] = {}
    for d in range(1, depth + 1):
        out[str(d)] = _joined([replay(right, d) for _, right in held]).length
    for category in sorted({category for category, _ in held}):
        runs = [replay(right, depth) for c, right in held if c == category]
        out[category] = _joined(runs).length
    return out


def survival(answers: Iterable[tuple[str, Sequence[int]]], depth: int) -> list[float]:
    """P(the first k drafts are right), k = 1 … depth, over all positions."""
    flat = torch.tensor([r for _, right in answers for r in right])
    return [float((flat >= k).float().mean()) for k in range(1, depth + 1)]


def run_of_right(drafts: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    """drafts, text: [anchors, D] -> how many of each row agree before the first that does not."""
    return (drafts == text).int().cumprod(-1).sum(-1)


def following(tokens: torch.Tensor, prompt_len: int, depth: int) -> torch.Tensor:
    """The `depth` tokens after each anchor of an answer, [anchors, depth], -1 beyond its end."""
    padded = torch.nn.functional.pad(tokens, (0, depth), value=-1)
    count = tokens.shape[0] - 1 - prompt_len
    rows = torch.arange(prompt_len, prompt_len + count)[:, None] + 1
    return padded[rows + torch.arange(depth)[None]]


def _joined(runs: Sequence[Rounds]) -> Rounds:
    return Rounds(sum(r.tokens for r in runs), sum(r.rounds for r in runs))
