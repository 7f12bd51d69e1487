"""What one process writes by itself: transformers' own model and cache, this project's choice of
tokens, and how near each choice was.

Texts are compared with it up to the first token that differs; that is allowed at a near-tie alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from actors.sampling.decide import Span, decide
from actors.sampling.noise import HIGH_BITS, high_bits, noise_key, token_codes
from actors.sampling.params import SamplingParams
from actors.sampling.race import score

NEAREST = 8
"""Tokens whose exact scores are looked at for the two best."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. prompt: token ids."""

    name: str
    prompt: tuple[int, ...]
    sampling: SamplingParams


@dataclass(frozen=True, slots=True)
class Own:
    """The text of one process. rows: the logits that decided each token, [V] each. margins: by how
    much the best score (log p, at a temperature log p + g) was above the second best."""

    tokens: tuple[int, ...]
    rows: tuple[torch.Tensor, ...]
    margins: tuple[float, ...]

    def logprob(self, place: int, token: int) -> float:
        row = self.rows[place].double()
        return float(row[token] - row.logsumexp(0))


@torch.inference_mode()
def own_text(model: Any, asked: Asked) -> Own:
    """max_tokens tokens, whatever ends a text."""
    tokens, fed, cache = list(asked.prompt), list(asked.prompt), DynamicCache()
    rows, margins = [], []
    for _ in range(asked.sampling.max_tokens):
        logits = model(input_ids=torch.tensor([fed]), cache=cache, use_cache=True).logits[0, -1:]
        span = Span(0, (), asked.sampling, tokens, len(asked.prompt), frozenset())
        rows.append(logits[0].clone())
        margins.append(margin(logits[0], asked.sampling, len(tokens)))
        fed = list(decide(logits, [span])[0].tokens)
        tokens += fed
    return Own(tuple(tokens[len(asked.prompt) :]), tuple(rows), tuple(margins))


def margin(row: torch.Tensor, sampling: SamplingParams, position: int) -> float:
    """Between the two best scores of a row [V], top-k and top-p off."""
    if sampling.greedy:
        best, second = row.double().topk(2).values.tolist()
        return float(best - second)
    key, top = noise_key(sampling.seed, position), float(row.max())
    high = high_bits(key, token_codes(len(row), row.device)).double()
    rough = -torch.log(-torch.log1p(-(high + 0.5) * 2.0**-HIGH_BITS))
    near = ((row.double() - top) / sampling.temperature + rough).topk(NEAREST).indices.tolist()
    scores = sorted(score(float(row[t]), top, sampling.temperature, key, t) for t in near)
    return scores[-1] - scores[-2]


def agreed(own: Own, tokens: Sequence[int]) -> int:
    """How many tokens are the same from the start."""
    pairs = enumerate(zip(own.tokens, tokens, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(own.tokens), len(tokens)))


def largest_logit(texts: Sequence[Own]) -> float:
    return max(float(row.abs().max()) for own in texts for row in own.rows)
