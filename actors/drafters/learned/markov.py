"""DSpark's serial heads: what the token before adds to a slot's logits, and how sure it is
(arXiv 2607.05147, §3).

`hidden` is the backbone's normed state of the slot; `before` the token before the slot's draft.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn
from typing_extensions import override

MarkovKind = Literal["vanilla", "gated", "rnn"]


class MarkovHead(nn.Module):
    """Bias of a slot's logits from the token before it, through rank r.

    vanilla: W2 e. gated: W2 (σ(gate[h; e]) ⊙ e). rnn: W2 tanh(o) with a state over the slots.
    """

    def __init__(
        self, kind: MarkovKind, vocab: int, draft_vocab: int, rank: int, hidden: int
    ) -> None:
        super().__init__()
        self.kind = kind
        self.rank = rank
        self.markov_w1 = nn.Embedding(vocab, rank)
        self.markov_w2 = nn.Linear(rank, draft_vocab, bias=False)
        if kind == "gated":
            self.gate_proj = nn.Linear(hidden + rank, rank)
        elif kind == "rnn":
            self.joint_proj = nn.Linear(2 * rank + hidden, 3 * rank)

    def start(self, like: torch.Tensor) -> torch.Tensor:
        """The state before the first slot, [..., rank] for hidden states [..., hidden]."""
        return like.new_zeros(*like.shape[:-1], self.rank)

    @override
    def forward(
        self, hidden: torch.Tensor, before: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Bias [..., draft_vocab], the embedding of `before` [..., rank], the next state."""
        e = self.markov_w1(before)
        if self.kind == "vanilla":
            return self.markov_w2(e), e, state
        if self.kind == "gated":
            gate = torch.sigmoid(self.gate_proj(torch.cat((hidden, e), -1)))
            return self.markov_w2(gate * e), e, state
        g, c, o = self.joint_proj(torch.cat((state, e, hidden), -1)).chunk(3, -1)
        keep = torch.sigmoid(g)
        state = keep * state + (1 - keep) * torch.tanh(c)
        return self.markov_w2(torch.tanh(o)), e, state


class ConfidenceHead(nn.Module):
    """P(the slot's draft is accepted | those before were): depends on the tokens before it, never
    on its own, so that lengths chosen by it stay lossless (mechanisms: non-anticipation)."""

    def __init__(self, hidden: int, rank: int, bias: bool = True) -> None:
        super().__init__()
        self.rank = rank  # 0: reads the hidden state alone
        self.proj = nn.Linear(hidden + rank, 1, bias=bias)

    @override
    def forward(self, hidden: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        """Logits [...]; their sigmoid is the probability."""
        out: torch.Tensor = self.proj(torch.cat((hidden, e), -1) if self.rank else hidden)
        return out.squeeze(-1)
