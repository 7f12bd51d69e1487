"""The law a draft was drawn from, compactly: some ids and their probabilities, zero elsewhere.

It has to be the very law of the draw. So the numbers that a drafter draws from are the numbers it
reports, in the precision in which they travel (S10, S15): fp32, taken relative to their fp64 sum.
A law cut to its largest ids is exact where the draft was drawn from what is left, renormalised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_NEAR_ONE = 1e-3
"""How far the probabilities may sum from 1: fp32 rounding stays far below, a mistaken law is
hardly ever as near."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenLaw:
    """ids: distinct, any order, int64 [n]. probs: relative, fp32 [n], each above 0."""

    ids: NDArray[np.int64]
    probs: NDArray[np.float32]

    @property
    def masses(self) -> NDArray[np.float64]:
        """The probabilities, fp64 [n], summing to one."""
        exact: NDArray[np.float64] = self.probs.astype(np.float64)
        exact /= exact.sum()
        return exact

    def of(self, token: int) -> float:
        """The token's probability."""
        found = np.flatnonzero(self.ids == token)
        return float(self.masses[found[0]]) if len(found) else 0.0


def one_hot(token: int) -> TokenLaw:
    """Of a draft without a law: taken as fixed by what precedes it (S11). Exact for a draft that
    was drawn as well, if the draw was independent of the verifier's; accepted less often."""
    return TokenLaw(np.array([token], np.int64), np.ones(1, np.float32))


def problem(law: TokenLaw, token: int, vocab_size: int) -> str:
    """Why `token` cannot have been drawn from this law over ids below vocab_size; else empty."""
    ids, probs = law.ids, law.probs
    if ids.shape != probs.shape or ids.ndim != 1 or not len(ids):
        return f"{ids.shape} ids with {probs.shape} probabilities"
    if int(ids.min()) < 0 or int(ids.max()) >= vocab_size:
        return f"an id outside the vocabulary of {vocab_size}"
    if len(np.unique(ids)) < len(ids):
        return "an id twice"
    if not (np.isfinite(probs).all() and (probs > 0.0).all()):
        return "a probability that is not above 0 and finite"
    total = float(probs.sum(dtype=np.float64))
    if abs(total - 1.0) > _NEAR_ONE:
        return f"probabilities that sum to {total:g}"
    return "" if (ids == token).any() else f"no token {token}, which was drafted"
