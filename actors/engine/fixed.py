"""Every block is verified whole, at whatever D was planned: where no cost curve is known.

Only the waiting rule looks at what came of earlier blocks, of all requests together.
"""

from __future__ import annotations

from collections.abc import Mapping

from actors.contracts import Gathered
from policies.acceptance import Acceptance, survival, verified
from policies.waiting import worth_s


class FixedLength:
    """What blocks are worth to an engine that does not choose D."""

    def __init__(self) -> None:
        self._acceptance = Acceptance()

    def worth(self, wanted: Mapping[str, int], writers: int, step_s: float) -> dict[str, float]:
        """Seconds that a step may wait for each block; step_s: of a step without prompts."""
        survive = survival(self._acceptance, max(wanted.values(), default=0))
        return dict.fromkeys(wanted, worth_s(1.0 / max(writers, 1), step_s, survive))

    def heard(self, gathered: Gathered) -> None:
        """An empty answer is a block whose first token was not accepted: waiting for the next is
        worth as much less."""
        for reason in gathered.missing.values():
            if reason == "empty":
                self.verified(1, 0)

    def verified(self, drafted: int, accepted: int) -> None:
        self._acceptance = verified(self._acceptance, drafted, accepted)
