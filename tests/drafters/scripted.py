"""Plays given blocks, one a round and session; then nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tests.drafters.base import Session, TokenDrafter


class ScriptedDrafter(TokenDrafter):
    """blocks: token ids by round. As an option of custom_class: "5 3 4|7|8 9"."""

    mechanism = "scripted"

    def __init__(
        self,
        blocks: Sequence[Sequence[int]] | str,
        vocab_size: int = 0,
        *,
        repeat: bool = False,
        max_block: int = 32,
    ) -> None:
        super().__init__(vocab_size, max_block)
        if isinstance(blocks, str):
            blocks = [[int(token) for token in block.split()] for block in blocks.split("|")]
        self.blocks = [tuple(block) for block in blocks]
        self.repeat = repeat

    def block(self, session: Session, depth: int) -> Sequence[int]:
        # The first commit carries the first token: round 1 plays block 0.
        turn = max(0, session.rounds - 1)
        if self.repeat and self.blocks:
            turn %= len(self.blocks)
        return self.blocks[turn][:depth] if turn < len(self.blocks) else ()
