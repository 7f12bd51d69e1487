"""Which of two drafters makes a session's next block: one that says what it expects of the block it
has found, or one whose record says what its blocks are worth (SuffixDecoding, arXiv 2411.04975,
§ hybrid). Neither number looks at a token that was drawn, so the choice is lossless under every
rule of acceptance (S16).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MEMORY = 400.0
"""Blocks a promise is remembered for, on average."""
PRIOR = 8.0
"""Tokens kept of as many promised, before anything is known."""


@dataclass(frozen=True, slots=True)
class Trust:
    """What one drafter has promised and what came true: accepted tokens, discounted sums."""

    promised: float = 0.0
    kept: float = 0.0


def learned(trust: Trust, promised: float, kept: int) -> Trust:
    """One block more, whose fate is known: `promised` expected accepted tokens, `kept` accepted."""
    stays = 1.0 - 1.0 / MEMORY
    return Trust(trust.promised * stays + promised, trust.kept * stays + kept)


def discount(trust: Trust) -> float:
    """Accepted tokens for each one promised; 1 where nothing is known."""
    return (trust.kept + PRIOR) / (trust.promised + PRIOR)


def promise(confidence: Sequence[float]) -> float:
    """Expected accepted tokens of a block, given each token's chance when those before it are
    accepted: the sum of the running products."""
    total, product = 0.0, 1.0
    for chance in confidence:
        product *= chance
        total += product
    return total


def takes_promise(promised: float, trust: Trust, survival: Sequence[float]) -> bool:
    """Whether the block that promises is worth at least the other drafter's next one, whose first
    k tokens are all accepted with chance survival[k - 1]. Equal ones: the promise is there already,
    the other would have to be drafted."""
    return promised > 0.0 and promised * discount(trust) >= sum(survival)
