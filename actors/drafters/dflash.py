"""DFlash (arXiv 2602.06036) and its kin: a block's drafts from one forward.

In DFlash itself a slot's draft does not depend on the drafts before it. DFlash 2 chooses among each
slot's likeliest by the token before; Domino corrects each slot by a GRU over all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from actors.drafters.learned.block_drafter import BlockDrafter
from actors.drafters.learned.domino import DominoHead
from actors.drafters.learned.walk import Adjust, Slots, Turn, walk


class DFlashDrafter(BlockDrafter):
    """`next_token` of its spec tells DeepSpec's layout from z-lab's."""

    mechanism = "dflash"

    @override
    def choose(self, slots: Sequence[Slots]) -> None:
        selector, domino = self.model.candidate_selector, self.model.domino
        if selector is not None:

            def select(turn: Turn) -> torch.Tensor:
                before = self.known(turn.before, selector.predecessor_codebook.num_embeddings)
                chosen: torch.Tensor = selector(turn.hidden, turn.logits, before)
                return chosen

            walk(slots, self.words, select)
        elif domino is not None:
            walk(slots, self.words, self._corrected(slots, domino))
        else:
            walk(slots, self.words, lambda turn: turn.logits)

    def _corrected(self, slots: Sequence[Slots], domino: DominoHead) -> Adjust:
        state = domino.start(torch.stack([s.hidden[0] for s in slots]))

        def adjust(turn: Turn) -> torch.Tensor:
            before = self.embed(self.known(turn.before, self.ends.tokens))
            more, state[turn.live] = domino(turn.hidden, before, state[turn.live])
            return turn.logits if turn.place < domino.spec.pure else turn.logits + more

        return adjust
