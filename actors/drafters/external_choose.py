"""One more draft for each of many blocks, from a row of logits each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from actors.sampling.choose import BadLogits, check_top, choose_row
from actors.sampling.params import SamplingParams
from actors.sampling.processors import must_process
from actors.sampling.rank import first_max


@dataclass(frozen=True, slots=True)
class Prefix:
    """What precedes the token: tokens, prompt and drafts included."""

    tokens: Sequence[int]
    prompt_len: int
    sampling: SamplingParams

    @property
    def plain_greedy(self) -> bool:
        output_len = len(self.tokens) - self.prompt_len
        return self.sampling.greedy and not must_process(self.sampling, output_len)


def next_drafts(
    logits: torch.Tensor, prefixes: Sequence[Prefix], eos: frozenset[int]
) -> list[int | None]:
    """argmax, or argmax(log q + g) with the shared noise; logits [len(prefixes), vocab].

    None where a row is not finite. Rows of plain greedy share one pass, so that a step on a GPU
    waits once for all of them.
    """
    plain = [i for i, prefix in enumerate(prefixes) if prefix.plain_greedy]
    drafts: list[int | None] = [None] * len(prefixes)
    if plain:
        for i, top, token in zip(plain, *first_max(logits[plain]), strict=True):
            drafts[i] = token if _finite(top, len(prefixes[i].tokens)) else None
    for i in set(range(len(prefixes))).difference(plain):
        p = prefixes[i]
        try:
            drafts[i] = choose_row(
                logits[i], p.sampling, len(p.tokens), p.tokens, p.prompt_len, eos
            )
        except BadLogits:
            continue
    return drafts


def _finite(top: float, position: int) -> bool:
    try:
        check_top(top, position)
    except BadLogits:
        return False
    return True
