"""Run-ahead: while the target verifies a block, the drafter goes on past it (DESIGN §7, Overlap).

The chain goes on over the drafter's own guess of what the target commits: the whole block and one
token more. If the guess comes true, the next block is already at the verifier when the round ends,
as the still-matching tail of this one; if not, the tail is stale and nothing is lost but the time
of a drafter that had nothing else to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from actors.contracts import SessionKey


@dataclass(frozen=True, slots=True)
class Answered:
    """A block that was sent: for this round, of so many tokens, as many as were wanted."""

    round: int
    depth: int


@dataclass(slots=True)
class Ahead:
    """Who may be taken further. most: tokens a drafter's chain may have, block and all; 0 is never.

    A session is taken further once for each block, and only while nothing newer is known of it.
    """

    most: int
    waiting: dict[SessionKey, Answered] = field(default_factory=dict)

    def answered(self, key: SessionKey, round: int, wanted: int, drafted: int) -> None:
        """A block went out. One that fell short has nothing to go on from."""
        if self.most > drafted == wanted > 0:
            self.waiting[key] = Answered(round, wanted)
        else:
            self.waiting.pop(key, None)

    def overtaken(self, key: SessionKey) -> None:
        """A commit has come, or the session is gone."""
        self.waiting.pop(key, None)

    def take(self) -> list[tuple[SessionKey, Answered, int]]:
        """Sessions to take further now, each with the length of its whole chain: the block, the
        guess of the target's own token, and a block after it."""
        taken = [
            (key, block, min(2 * block.depth + 1, self.most)) for key, block in self.waiting.items()
        ]
        self.waiting.clear()
        return taken
