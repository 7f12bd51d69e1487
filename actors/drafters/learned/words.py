"""Choosing drafts from rows of a head that may know a part of the target's vocabulary alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from actors.drafters.external_choose import Next, Prefix, next_drafts


class Words:
    """vocab: the target's. draft_ids: target ids of the head's rows [rows]; None: row i is id i.

    Plain greedy stays in the small vocabulary; all else needs ids that are the target's (noise,
    penalties, biases), so those rows, and no others, are spread over the full vocabulary.
    """

    def __init__(
        self, vocab: int, draft_ids: torch.Tensor | None, eos: frozenset[int] = frozenset()
    ) -> None:
        self.vocab = vocab
        self.eos = eos
        self._ids = draft_ids
        self._listed = None if draft_ids is None else draft_ids.tolist()

    def next(self, logits: torch.Tensor, prefixes: Sequence[Prefix]) -> list[Next | None]:
        """A target id, and its law, for each row of logits [len(prefixes), rows of the head]; None
        where the row is not finite."""
        if self._listed is None:
            return next_drafts(logits[:, : self.vocab], prefixes, self.eos)
        plain = [i for i, prefix in enumerate(prefixes) if prefix.plain_greedy]
        rest = [i for i, prefix in enumerate(prefixes) if not prefix.plain_greedy]
        drafts: list[Next | None] = [None] * len(prefixes)
        if plain:
            rows = logits[plain] if rest else logits
            small = next_drafts(rows, [prefixes[i] for i in plain], self.eos)
            for i, found in zip(plain, small, strict=True):
                drafts[i] = None if found is None else (self._listed[found[0]], None)
        if rest:
            full = self.spread(logits[rest])
            spread = next_drafts(full, [prefixes[i] for i in rest], self.eos)
            for i, found in zip(rest, spread, strict=True):
                drafts[i] = found
        return drafts

    def spread(self, logits: torch.Tensor) -> torch.Tensor:
        """[n, rows of the head] -> [n, vocab], -inf where the drafter knows no token."""
        if self._ids is None:
            return logits[:, : self.vocab]
        full = logits.new_full((logits.shape[0], self.vocab), float("-inf"))
        full[:, self._ids.to(logits.device)] = logits
        return full
