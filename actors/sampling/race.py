"""The exponential race over a row: argmax of the score log p + g, bounded in fp32, decided in fp64.

The bound: E = -log1p(-v) is at least v, so a token's p/E is at most p/v, which needs no logarithm
and only the high bits of v, rounded down. For the token with the best bound the high bits rounded
up give a p/E that it does reach. Whatever is bounded below that, in fp32 with a margin for
rounding, is out; a handful remains, and the scalar fp64 score of `score` decides among it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from actors.sampling.noise import HIGH_BITS, NoiseKey, gumbel, high_bits, uniform
from actors.sampling.rank import arg_max, at_least

# Tokens within reach of the winner have log2 p above -log2(2^53 * 36.8) = -58.2, so the fp32
# exponent is off by at most 3 * 2^-24 * 58.2 and the bound by 7.3e-6 with exp2, sum and division.
_MARGIN = 1.0 - 2.0**-14
_LEAST_V = 2.0**-22  # v * 2^31 is at least its integer part plus this, the low bits being odd
_MOST_V = 1.0 - 2.0**-53
_COLDEST = 1e-30  # for the fp32 bound alone: 1/T stays finite, and a larger T only raises bounds
_LOG2E = math.log2(math.e)


def score(value: float, top: float, temperature: float, key: NoiseKey, token: int) -> float:
    """log p + g up to the row's constant, in fp64: the law itself."""
    return (value - top) / temperature + gumbel(uniform(key, token))


@dataclass(slots=True)
class Race:
    """values: logits of the tokens that run, fp32 or fp64. p: their probabilities relative to the
    row's top, fp32. high: the high bits of their noise. bound: of p/E * 2^-31, 0 for a token that
    is out of the race. All [n]."""

    values: torch.Tensor
    top: float
    temperature: float
    p: torch.Tensor
    high: torch.Tensor
    bound: torch.Tensor

    def contenders(self) -> list[int]:
        """Places that can win: those whose bound of p/E reaches a p/E that exists."""
        threshold = self._reached(arg_max(self.bound)) * 2.0**-HIGH_BITS * _MARGIN
        return at_least(self.bound, threshold)

    def drop_from(self, place: int) -> None:
        """Out with the token at this place and all behind it in the order of `rank`."""
        value = self.values[place]
        self.bound.masked_fill_(self.values < value, 0.0)
        self.bound[place:].masked_fill_(self.values[place:] == value, 0.0)

    def _reached(self, place: int) -> float:
        """A p/E that the token at this place surely has."""
        v = min((int(self.high[place]) + 1) * 2.0**-HIGH_BITS, _MOST_V)
        p = math.exp((float(self.values[place]) - self.top) / self.temperature)
        return p / -math.log1p(-v)


def make_race(
    values: torch.Tensor, codes: torch.Tensor, top: float, temperature: float, key: NoiseKey
) -> Race:
    """All of `values` run; codes: `token_codes` of their ids."""
    scaled = values.sub(top).mul_(_LOG2E / max(temperature, _COLDEST))
    p = scaled.to(torch.float32).exp2_()
    high = high_bits(key, codes)
    return Race(values, top, temperature, p, high, p / high.to(torch.float32).add_(_LEAST_V))
