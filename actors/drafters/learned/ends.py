"""Where a drafter begins and ends: an input embedding and an output head, most often the target's.

A reduced vocabulary is rows of the head, each with the target id it stands for.
"""

from __future__ import annotations

import torch
from torch import nn

from actors.drafters.errors import refusal
from actors.drafters.learned.target_parts import TargetParts

EMBEDDING = "embed_tokens.weight"
HEAD = "lm_head.weight"


class Ends(nn.Module):
    """embedding: [vocab, hidden], in whatever precision it is stored; rows are widened when they
    are read. draft_ids: target ids of the head's rows, None when they are the ids."""

    def __init__(
        self, embedding: torch.Tensor, head: torch.Tensor, draft_ids: torch.Tensor | None
    ) -> None:
        super().__init__()
        self._embedding = embedding  # no buffer: nothing casts it
        self.head = nn.Linear(head.shape[1], head.shape[0], bias=False, device="meta")
        self.head.weight = nn.Parameter(head, requires_grad=False)
        self.draft_ids = draft_ids

    @property
    def table(self) -> torch.Tensor:
        """Embeddings [tokens, hidden], as stored."""
        return self._embedding

    @property
    def tokens(self) -> int:
        """Ids that have an embedding."""
        return int(self._embedding.shape[0])

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """[...] -> [..., hidden], as stored"""
        return self._embedding[ids]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., hidden] -> [..., rows of the head]"""
        out: torch.Tensor = self.head(hidden)
        return out


def make_ends(
    tensors: dict[str, torch.Tensor], parts: TargetParts, draft_ids: torch.Tensor | None
) -> Ends:
    """The drafter's own tensors where it has them and they are not the target's, else those.

    Copies of the target's are dropped: equal values, row for row, are one tensor in memory.
    Raises DrafterLoadError: a head that is missing and cannot be the target's.
    """
    embedding = _own_or(tensors.get(EMBEDDING), parts.embedding)
    head = tensors.get(HEAD)
    if head is None and draft_ids is not None:
        head = parts.head[draft_ids.to(parts.head.device)]
    head = _own_or(head, parts.head)
    if draft_ids is None and head.shape[0] != parts.vocab:
        raise refusal(
            f"lm_head has {head.shape[0]} rows and the target {parts.vocab}, and there is no d2t "
            "that maps one to the other"
        )
    return Ends(embedding, head, draft_ids)


def _own_or(own: torch.Tensor | None, target: torch.Tensor) -> torch.Tensor:
    if own is None:
        return target
    if own.shape == target.shape and torch.equal(own.to(target.device, target.dtype), target):
        return target
    return own.to(target.device, target.dtype)
