"""The draws of `rejection` and `block`: a counter-based hash, so that a request can be repeated.

One number for each (seed, base length of the block, position, use). Its domain is its own: what is
drawn here is independent of the noise that `coupled` shares, which a drafter may have looked at.

Why the base length is part of the key: under `block` the count of accepted tokens depends on later
drafts too, so a position that was drafted, dropped and is drafted again needs a fresh number. Every
round commits at least one token, so no base comes twice, and a drafter that takes over at the same
length draws the same block.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import torch

from actors.sampling.noise import mix64

_M64 = 0xFFFFFFFFFFFFFFFF
_WEYL = 0x9E3779B97F4A7C15
_DOMAIN = 0xD1B54A32D192ED03  # odd; the noise of `coupled` starts from another state


class Use(enum.IntEnum):
    """What a number is for."""

    DRAFT = 1
    ACCEPT = 2
    TARGET = 3


class Place(NamedTuple):
    """base: committed tokens the block follows; position: absolute, of the token decided about."""

    seed: int
    base: int
    position: int


def uniform(place: Place, use: Use) -> float:
    """An odd multiple of 2^-53 in (0, 1)."""
    state = mix64((place.seed + _DOMAIN) & _M64)
    for word in (use, place.base, place.position):
        state = mix64(((state ^ (word * _WEYL)) + _WEYL) & _M64)
    return ((state >> 12) * 2 + 1) * 2.0**-53


def passes(chance: float, place: Place) -> bool:
    """True with probability `chance`."""
    return uniform(place, Use.ACCEPT) < chance


def pick(weights: torch.Tensor, place: Place, use: Use) -> int:
    """An index with probability weights / sum; fp64 [n], none negative, some above 0."""
    mass = weights.cumsum(0)
    goal = mass[-1] * uniform(place, use)
    index = min(int(torch.searchsorted(mass, goal, right=True)), len(mass) - 1)
    # Rounding may land on a weight of 0 only at the far end, where the goal rounds to the sum.
    return index if float(weights[index]) > 0.0 else int(weights.nonzero()[-1])
