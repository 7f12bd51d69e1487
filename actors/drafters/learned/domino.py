"""Domino's head (arXiv 2605.29707): a GRU over the tokens before a slot corrects its logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from typing_extensions import override


@dataclass(frozen=True, slots=True)
class DominoSpec:
    """state: width of the GRU; rank: of the correction; draft_vocab: rows of it. pure: so many
    first drafts are left as they are."""

    state: int
    rank: int
    draft_vocab: int
    pure: int = 0


class DominoHead(nn.Module):
    """Tensor names as SpecForge's; they lie at the top of a checkpoint."""

    def __init__(self, spec: DominoSpec, hidden: int) -> None:
        super().__init__()
        self.spec = spec
        self.prefix_gru = nn.GRU(hidden, spec.state, bias=False, batch_first=True)
        self.embed_proj = nn.Sequential(
            nn.Linear(hidden + spec.state, spec.rank, bias=False),
            nn.SiLU(),
            nn.Linear(spec.rank, spec.draft_vocab, bias=False),
        )

    def start(self, like: torch.Tensor) -> torch.Tensor:
        """The state before the first token, [n, state] for hidden states [n, H]."""
        return like.new_zeros(like.shape[0], self.spec.state)

    @override
    def forward(
        self, hidden: torch.Tensor, embedded: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """hidden and the embedding of the token before, both [n, H]; state [n, state] -> what is
        added to the logits [n, rows of the head], and the next state."""
        _, after = self.prefix_gru(embedded[:, None], state[None].contiguous())
        state = after[0]
        return self.embed_proj(torch.cat((hidden, state), -1)), state
