"""What a block is worth against the text the target will write: how many first tokens are right.

Under `greedy` and `coupled` the target's text does not depend on drafts, so that number is fixed
when the block is drafted; verifying, being late and being scored only uncover it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.simulate.scenario import Scenario


@dataclass(slots=True)
class Block:
    """size tokens after base committed ones, of which the first `right` are what the target writes.
    draft_s: what drafting its batch took."""

    way: str
    base: int
    asked: int
    size: int
    right: int
    draft_s: float = 0.0

    def usable(self, length: int) -> int:
        """Tokens of it that are still to be verified at a committed length: all, the tail of a
        block that came late and was right so far, or none."""
        behind = length - self.base
        return max(0, self.size - behind) if 0 <= behind <= self.right else 0

    def decided(self, length: int) -> bool:
        """Whether the committed text shows by now how good it is."""
        return length >= self.base + min(self.size, self.right + 1)


class Texts:
    """Draws blocks by the scenario's acceptance. One stream of its own, so that load and wire are
    the same whatever is drafted."""

    def __init__(self, scenario: Scenario) -> None:
        self._rng = np.random.default_rng((scenario.seed, 1))
        self._ways = scenario.ways

    def block(
        self, way: str, cohort: str, base: int, depth: int, *, useless: bool = False
    ) -> Block:
        of = self._ways[way]
        rates = of.acceptance.get(cohort, ())
        found = of.found.get(cohort, 1.0 if rates else 0.0)
        draws = self._rng.random(1 + depth)
        if not rates or draws[0] >= found:
            return Block(way, base, depth, 0, 0)
        right = 0
        if not useless:
            while right < depth and draws[1 + right] < rates[min(right, len(rates) - 1)]:
                right += 1
        return Block(way, base, depth, depth, right)
