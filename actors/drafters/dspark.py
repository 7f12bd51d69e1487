"""DSpark (arXiv 2607.05147): DFlash's block, whose drafts are chosen one after the other with a
bias from the draft before, and a confidence that looks at what is before a slot alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from actors.drafters.learned.block_drafter import BlockDrafter
from actors.drafters.learned.walk import Slots, Turn, walk


class DSparkDrafter(BlockDrafter):
    """The base logits of all slots are made in one product; what a slot costs beyond is the Markov
    head's own rows."""

    mechanism = "dspark"

    @override
    def choose(self, slots: Sequence[Slots]) -> None:
        markov, confidence = self.model.markov_head, self.model.confidence_head
        first = torch.stack([s.hidden[0] for s in slots])
        state = first[:, :0] if markov is None else markov.start(first)

        def adjust(turn: Turn) -> torch.Tensor:
            logits, e = turn.logits, turn.hidden[:, :0]
            if markov is not None:
                before = self.known(turn.before, markov.markov_w1.num_embeddings)
                bias, e, state[turn.live] = markov(turn.hidden, before, state[turn.live])
                logits = logits + bias
            if confidence is not None:
                sure = torch.sigmoid(confidence(turn.hidden, e).float()).tolist()
                for i, value in zip(turn.live, sure, strict=True):
                    slots[i].chain.confidence.append(value)
            return logits

        walk(slots, self.words, adjust)
