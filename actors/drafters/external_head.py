"""A draft model's head with the rows of some tokens alone: the others are never drafted."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_IDS = "pilotfish_draft_ids"


def reduce_head(model: Any, ids: torch.Tensor) -> None:
    """ids: int64 [rows], distinct; logits come in their order from now on."""
    whole = model.get_output_embeddings().weight
    head = nn.Linear(whole.shape[1], len(ids), bias=False, dtype=whole.dtype, device=whole.device)
    head.weight = nn.Parameter(whole.detach()[ids].clone(), requires_grad=False)
    model.config.tie_word_embeddings = False
    model.set_output_embeddings(head)
    setattr(model, _IDS, ids)


class Head:
    """What a model's logits are logits of. size: ids that can be named, the model's own vocabulary
    where nothing says more."""

    def __init__(self, model: Any, size: int) -> None:
        self._ids: torch.Tensor | None = getattr(model, _IDS, None)
        rows = int(model.get_output_embeddings().weight.shape[0])
        known = rows if self._ids is None else int(model.config.get_text_config().vocab_size)
        # Ids that only one side has are never proposed (pitfalls S34).
        self.size = min(known, size or known)

    def spread(self, logits: torch.Tensor) -> torch.Tensor:
        """[n, rows of the head] -> [n, size], -inf for what is not drafted."""
        if self._ids is None:
            return logits[:, : self.size]
        if self._ids.device != logits.device:
            self._ids = self._ids.to(logits.device)
        return logits.new_full((len(logits), self.size), float("-inf")).index_copy_(
            1, self._ids, logits
        )
