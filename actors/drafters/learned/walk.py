"""Blocks whose drafts are chosen one after the other: slot by slot, all sessions at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from actors.drafters.learned.base import Chain
from actors.drafters.learned.picking import extend
from actors.drafters.learned.words import Words


@dataclass(frozen=True, slots=True)
class Slots:
    """A forward's outcome for one chain: normed hidden states [drafts, H] of the slots that
    predict, the first draft's first, and their logits [drafts, rows of the head]."""

    chain: Chain
    hidden: torch.Tensor
    logits: torch.Tensor


@dataclass(frozen=True, slots=True)
class Turn:
    """One slot of the chains that go on. live: which they are. place: how many drafts each has.
    hidden [n, H], logits [n, rows of the head]. before: the token before the slot's draft."""

    live: list[int]
    place: int
    hidden: torch.Tensor
    logits: torch.Tensor
    before: list[int]


Adjust = Callable[[Turn], torch.Tensor]
"""Logits [n, rows of the head] that the drafts are chosen from."""


def walk(slots: Sequence[Slots], words: Words, adjust: Adjust) -> None:
    """Fill the chains' drafts. Raises DrafterError naming sessions with logits not finite."""
    live, place = list(range(len(slots))), 0
    while live:
        parts = [slots[i] for i in live]
        before = [(s.chain.drafts or s.chain.session.tokens)[-1] for s in parts]
        hidden = torch.stack([s.hidden[place] for s in parts])
        logits = torch.stack([s.logits[place] for s in parts])
        turn = Turn(live, place, hidden, logits, before)
        extend([s.chain for s in parts], adjust(turn), words)
        live = [i for i in live if slots[i].chain.open]
        place += 1
