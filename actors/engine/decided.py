"""What was decided for one step, before it ran.

Blocks are asked for at the end of the step before, so there are two of these at a time: of the step
that has run and is learnt from, and of the one that comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from policies.choice import Arm
from policies.choice_records import Decision, Moment


@dataclass(slots=True)
class Decided:
    """asks: (sessions, tokens) of each arm that is asked for blocks that may be verified. still: it
    and steps after it are like the one before, with nobody asked for anything. reads: a drafter in
    this process reads a text for it."""

    moment: Moment
    decision: Decision
    asks: dict[Arm, tuple[int, int]] = field(default_factory=dict)
    still: bool = False
    reads: bool = False

    @property
    def elsewhere(self) -> bool:
        """Whether drafters in other processes are asked."""
        return any(arm.remote for arm in self._asked)

    @property
    def here(self) -> bool:
        """Whether drafters in this process are."""
        return not all(arm.remote for arm in self._asked)

    @property
    def _asked(self) -> list[Arm]:
        shadow = self.decision.shadow
        return [*self.asks, *([shadow.arm] if shadow else [])]
