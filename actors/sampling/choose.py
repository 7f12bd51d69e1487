"""One row's token, on the target's side and on the drafter's alike (DESIGN §5).

Greedy: argmax. Rule `coupled`: y = argmax(log p + g) over the support, g the shared noise of
(seed, position, token). Ties go to the lowest id. The law is the scalar fp64 score of `_score`;
everything vectorised only rules out tokens that cannot win, so the token is the one that scoring
the whole support in fp64 would give.

The bound: E = -log1p(-v) is at least v, so a token's p/E is at most p/v, which needs no logarithm
and only the high bits of v, rounded down. For the token with the best bound the high bits rounded
up give a p/E that it does reach. Whatever is bounded below that, in fp32 with a margin for
rounding, is out; a handful remains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from actors.sampling.noise import (
    HIGH_BITS,
    NoiseKey,
    gumbel,
    high_bits,
    noise_key,
    token_codes,
    uniform,
)
from actors.sampling.params import SamplingParams
from actors.sampling.processors import Processors
from actors.sampling.rank import first_max, top_any
from actors.sampling.support import support

# Tokens within reach of the winner have log2 p above -log2(2^53 * 36.8) = -58.2, so the fp32
# exponent is off by at most 3 * 2^-24 * 58.2 and the bound by 7.3e-6 with exp2, sum and division.
_MARGIN = 1.0 - 2.0**-14
_LEAST_V = 2.0**-22  # v * 2^31 is at least its integer part plus this, the low bits being odd
_MOST_V = 1.0 - 2.0**-53
_FEW = 24  # a support this small is scored outright
_LEADERS = 8  # bounds looked at first; nearly always more than can win
_COLDEST = 1e-30  # for the fp32 bound alone: 1/T stays finite, and a larger T only raises bounds
_LOG2E = math.log2(math.e)


class BadLogits(ValueError):
    """A row that no token can be drawn from: NaN, +inf, or nothing above -inf (S52)."""


def choose_row(
    logits: torch.Tensor,
    params: SamplingParams,
    position: int,
    tokens: Sequence[int] = (),
    prompt_len: int = 0,
    eos_ids: frozenset[int] = frozenset(),
) -> int:
    """The token at absolute `position` for one row of logits [V].

    tokens: the committed and drafted ids before the position, read by penalties only; the first
    prompt_len are the prompt's, which min_tokens needs too. A drafter calls this with its own
    logits, ids being the target's. Raises BadLogits.
    """
    process = Processors(params, tokens, prompt_len, eos_ids, position - prompt_len)
    return choose(logits, process, params, position)


def choose(logits: torch.Tensor, process: Processors, params: SamplingParams, position: int) -> int:
    """The same, with the request's processors at hand. Raises BadLogits."""
    if process.active:
        check_top(float(logits.max()), position)  # a mask may hide what is wrong with the row
    row = process(logits)
    if params.greedy:
        tops, tokens = first_max(row[None])
        check_top(tops[0], position)
        return tokens[0]
    top = float(row.max())
    check_top(top, position)
    return _race(row, top, params, position)


def _race(row: torch.Tensor, top: float, params: SamplingParams, position: int) -> int:
    """argmax of the score over the support of a processed row; top: its maximum."""
    values, ids = support(row, top, params)
    key = noise_key(params.seed, position)
    if len(values) > _FEW:
        codes = token_codes(len(row), row.device)
        near = _contenders(values, codes if ids is None else codes[ids], top, params, key)
    else:
        near = list(range(len(values)))
    tokens: list[int] = near if ids is None else ids[near].tolist()
    scored = zip(values[near].tolist(), tokens, strict=True)
    _, negated = max((_score(value, top, params, key, token), -token) for value, token in scored)
    return -negated


def check_top(top: float, position: int) -> None:
    """A row's maximum tells it all: max() keeps NaN, and a finite one means a choice exists."""
    if not math.isfinite(top):
        what = "NaN" if math.isnan(top) else "+inf" if top > 0 else "no token above -inf"
        raise BadLogits(f"the logits at position {position} hold {what}")


def _score(value: float, top: float, params: SamplingParams, key: NoiseKey, token: int) -> float:
    """log p + g up to the row's constant, in fp64: the law itself."""
    return (value - top) / params.temperature + gumbel(uniform(key, token))


def _contenders(
    values: torch.Tensor, codes: torch.Tensor, top: float, params: SamplingParams, key: NoiseKey
) -> list[int]:
    """Places in `values` that can win: those whose bound of p/E reaches a p/E that exists."""
    scaled = values.sub(top).mul_(_LOG2E / max(params.temperature, _COLDEST))
    high = high_bits(key, codes)
    bound = scaled.to(torch.float32).exp2_().div_(high.to(torch.float32).add_(_LEAST_V))
    leaders, places = (x.tolist() for x in top_any(bound, min(_LEADERS, len(bound))))
    best = places[0]
    v = min((int(high[best]) + 1) * 2.0**-HIGH_BITS, _MOST_V)
    reached = math.exp((float(values[best]) - top) / params.temperature) / -math.log1p(-v)
    threshold = reached * 2.0**-HIGH_BITS * _MARGIN
    if len(leaders) < len(bound) and leaders[-1] >= threshold:
        near: list[int] = (bound >= threshold).nonzero().view(-1).tolist()
        return near
    return [place for place, lead in zip(places, leaders, strict=True) if lead >= threshold]
