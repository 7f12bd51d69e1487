"""The target's law at each position, rebuilt from its last hidden state: the final norm and the
rows of its head that a drafter can draft. No logits need to be stored."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from actors.drafters.learned.target_parts import TargetParts
from actors.training.vocabulary import positions_of


@dataclass(frozen=True, slots=True)
class TargetLaw:
    """norm: [hidden]; head: [draft vocab, hidden], the target's own rows of draft_ids; places:
    int64 [vocab], where a token stands among them, or -1."""

    norm: torch.Tensor
    eps: float
    head: torch.Tensor
    draft_ids: torch.Tensor
    places: torch.Tensor

    @classmethod
    def of(cls, parts: TargetParts, draft_ids: torch.Tensor) -> TargetLaw:
        """Within the tokens draft_ids [draft vocab], distinct."""
        return cls(
            parts.norm,
            float(parts.config.get("rms_norm_eps", 1e-6)),
            parts.head[draft_ids].contiguous(),
            draft_ids,
            positions_of(draft_ids, parts.vocab),
        )

    @torch.no_grad()
    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """What the head reads [rows, hidden] -> probabilities within the draft vocabulary
        [rows, draft vocab]."""
        return torch.softmax(states @ self.head.T, -1)

    @torch.no_grad()
    def states(self, last: torch.Tensor) -> torch.Tensor:
        """Pre-norm hidden states of the last layer [rows, hidden] -> what the head reads."""
        return F.rms_norm(last.float(), (last.shape[-1],), self.norm, self.eps)
