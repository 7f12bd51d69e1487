"""Log-probabilities of emitted tokens under the target's raw logits: before temperature and
processors, so they say what the model believes, whatever the sampling did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from actors.sampling.processors import upcast
from actors.sampling.rank import largest, rank_of


@dataclass(frozen=True, slots=True)
class TokenScores:
    """One emitted token. logprob: natural log. rank: 1 is the most likely, ties by lowest id.
    top: the n most likely as (token, logprob), descending."""

    token: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


def scores(rows: torch.Tensor, tokens: Sequence[int], count: int) -> tuple[TokenScores, ...]:
    """Scores of tokens[i] under rows[i]; rows [len(tokens), V]; count: how many in `top`."""
    return tuple(_scores(upcast(row), t, count) for row, t in zip(rows, tokens, strict=True))


def _scores(row: torch.Tensor, token: int, count: int) -> TokenScores:
    total = row.logsumexp(0)
    top: tuple[tuple[int, float], ...] = ()
    if count > 0:
        values, ids = largest(row, count)
        top = tuple(zip(ids.tolist(), (values - total).tolist(), strict=True))
    return TokenScores(token, float(row[token] - total), rank_of(row, token), top)
