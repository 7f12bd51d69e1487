"""A block on its way to its score: the tokens that are written after it say how much was right.

Each one that is offered has its score, also those that come while another is being scored. One
that is right and was not verified takes as many steps as it has tokens, one that is wrong takes
one; were those that come meanwhile left out, what is wrong would count up to so many times as
often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Offered:
    """behind: tokens of the block before these that had come true before. sure: how sure the
    drafter was of each. matched: how many have come true since. evidence: no plan let it be
    verified, so that only its score says whether it was asked for in vain."""

    tokens: tuple[int, ...]
    behind: int = 0
    sure: tuple[float, ...] = ()
    matched: int = 0
    evidence: bool = False

    def settled(self, tokens: Sequence[int]) -> bool:
        """Whether, now that these are written, it is known how much of it was right."""
        for token in tokens:
            if token != self.tokens[self.matched]:
                return True
            self.matched += 1
            if self.matched == len(self.tokens):
                return True
        return False
