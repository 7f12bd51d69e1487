"""DFlash 2's selector: of a slot's likeliest tokens, the one that best follows the one before."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from typing_extensions import override


@dataclass(frozen=True, slots=True)
class SelectorSpec:
    """vocab: tokens of both codebooks, the target's. top_k: candidates a slot."""

    vocab: int
    rank: int
    top_k: int


class CandidateSelector(nn.Module):
    def __init__(self, spec: SelectorSpec, hidden: int) -> None:
        super().__init__()
        self.top_k = spec.top_k
        self.predecessor_codebook = nn.Embedding(spec.vocab, spec.rank)
        self.successor_codebook = nn.Embedding(spec.vocab, spec.rank)
        self.hidden_projection = nn.Linear(hidden, spec.rank, bias=False)

    @override
    def forward(
        self, hidden: torch.Tensor, logits: torch.Tensor, before: torch.Tensor
    ) -> torch.Tensor:
        """hidden [n, H], logits [n, vocab], before [n] -> logits [n, vocab] of the candidates
        after each token, -inf elsewhere: the very law of a sampled draft."""
        values, ids = logits.topk(min(self.top_k, logits.shape[-1]), -1)
        context = self.predecessor_codebook(before) * self.hidden_projection(hidden)
        scores = values + (context[:, None] * self.successor_codebook(ids)).sum(-1)
        return torch.full_like(logits, float("-inf")).scatter(-1, ids, scores.to(logits.dtype))
