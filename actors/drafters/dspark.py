"""DSpark (arXiv 2607.05147): DFlash's block, whose drafts are chosen one after the other with a
bias from the draft before, and a confidence that looks at what is before a slot alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from actors.drafters.learned.block_drafter import BlockDrafter, Slots
from actors.drafters.learned.picking import extend


class DSparkDrafter(BlockDrafter):
    """Slot by slot, all sessions at once. The base logits of all slots are made in one product;
    what a slot costs beyond is the Markov head's own rows."""

    mechanism = "dspark"

    @override
    def choose(self, slots: Sequence[Slots]) -> None:
        markov, confidence = self.model.markov_head, self.model.confidence_head
        before = [self._anchor(s.chain.session) for s in slots]
        first = torch.stack([s.hidden[0] for s in slots])
        state = None if markov is None else markov.start(first)
        live, place = list(range(len(slots))), 0
        while live:
            chains = [slots[i].chain for i in live]
            hidden = torch.stack([slots[i].hidden[place] for i in live])
            logits = torch.stack([slots[i].logits[place] for i in live])
            e = hidden[:, :0]
            if markov is not None and state is not None:
                bias, e, state = markov(hidden, self._ids(before), state)
                logits = logits + bias
            extend(chains, logits, self.words)
            if confidence is not None:
                sure = torch.sigmoid(confidence(hidden, e).float()).tolist()
                for chain, value in zip(chains, sure, strict=True):
                    chain.confidence.append(value)
            place += 1
            kept = [j for j, chain in enumerate(chains) if chain.open]
            live = [live[j] for j in kept]
            before = [chains[j].drafts[-1] for j in kept]
            state = None if state is None else state[kept]

    def _ids(self, tokens: Sequence[int]) -> torch.Tensor:
        known = self.spec.markov.vocab if self.spec.markov else 0
        return torch.tensor([t if 0 <= t < known else 0 for t in tokens], device=self.device)
