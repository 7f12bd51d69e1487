"""One more draft for each of many blocks, from a row of logits each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from actors.drafters.law import draw_next
from actors.sampling.choose import BadLogits, check_top, choose_row
from actors.sampling.law import TokenLaw
from actors.sampling.params import SamplingParams
from actors.sampling.processors import must_process
from actors.sampling.rank import first_max

Next = tuple[int, TokenLaw | None]
"""A draft, and the law it was drawn from, if it was drawn from one."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """What precedes the token: tokens, prompt and drafts included; the first `base` of them are
    committed. drawn: its draft is drawn from a law of its own, not with the shared noise."""

    tokens: Sequence[int]
    prompt_len: int
    sampling: SamplingParams
    base: int = 0
    drawn: bool = False

    @property
    def plain_greedy(self) -> bool:
        output_len = len(self.tokens) - self.prompt_len
        return self.sampling.greedy and not must_process(self.sampling, output_len)


def next_drafts(
    logits: torch.Tensor, prefixes: Sequence[Prefix], eos: frozenset[int]
) -> list[Next | None]:
    """argmax, argmax(log q + g) with the shared noise, or a draw from q with q; logits
    [len(prefixes), vocab].

    None where a row is not finite. Rows of plain greedy share one pass, so that a step on a GPU
    waits once for all of them.
    """
    plain = [i for i, prefix in enumerate(prefixes) if prefix.plain_greedy]
    drafts: list[Next | None] = [None] * len(prefixes)
    if plain:
        rows = logits if len(plain) == len(prefixes) else logits[plain]
        for i, top, token in zip(plain, *first_max(rows), strict=True):
            drafts[i] = (token, None) if _finite(top, len(prefixes[i].tokens)) else None
    for i in set(range(len(prefixes))).difference(plain):
        try:
            drafts[i] = _next(logits[i], prefixes[i], eos)
        except BadLogits:
            continue
    return drafts


def _next(row: torch.Tensor, p: Prefix, eos: frozenset[int]) -> Next:
    if p.drawn:
        return draw_next(row, p.sampling, p.base, p.tokens, p.prompt_len, eos)
    return choose_row(row, p.sampling, len(p.tokens), p.tokens, p.prompt_len, eos), None


def _finite(top: float, position: int) -> bool:
    try:
        check_top(top, position)
    except BadLogits:
        return False
    return True
