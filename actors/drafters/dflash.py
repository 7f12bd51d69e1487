"""DFlash (arXiv 2602.06036): all drafts of a block from one forward, each on its own.

Given the context a slot's draft does not depend on the drafts before it, so the law of a sampled
draft is its own slot's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from actors.drafters.learned.block_drafter import BlockDrafter, Slots
from actors.drafters.learned.picking import extend


class DFlashDrafter(BlockDrafter):
    """`next_token` of its spec tells DeepSpec's layout from z-lab's."""

    mechanism = "dflash"

    @override
    def choose(self, slots: Sequence[Slots]) -> None:
        place = 0
        while live := [s for s in slots if s.chain.open]:
            rows = torch.stack([s.logits[place] for s in live])
            extend([s.chain for s in live], rows, self.words)
            place += 1
