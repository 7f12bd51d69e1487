"""Draws its blocks from a law that depends on the last token, and gives the law with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from actors.contracts import DrafterInfo, DraftRequest, Proposal
from actors.drafters.law import draw_next
from actors.sampling.law import TokenLaw
from tests.drafters.base import TokenDrafter


class DrawingDrafter(TokenDrafter):
    """q[t] is the law after token t. ends: tokens that nothing is drafted after, as a drafter would
    that looks at what it has drawn. lawless: its drafts come without the law."""

    mechanism = "drawing"

    def __init__(
        self,
        q: Sequence[Sequence[float]],
        *,
        ends: frozenset[int] = frozenset(),
        lawless: bool = False,
    ) -> None:
        super().__init__(len(q))
        self._rows = [
            torch.tensor([math.log(x) if x > 0 else -math.inf for x in row], dtype=torch.float64)
            for row in q
        ]
        self._ends = ends
        self._lawless = lawless

    @property
    def info(self) -> DrafterInfo:
        return replace(super().info, gives_law=not self._lawless)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        return [self._proposal(request) for request in requests]

    def _proposal(self, request: DraftRequest) -> Proposal:
        session = self.session(request.key)
        tokens, base, laws = list(session.tokens), len(session.tokens), list[TokenLaw]()
        while len(laws) < request.depth and not (laws and tokens[-1] in self._ends):
            row, sampling = self._rows[tokens[-1]], session.sampling
            token, law = draw_next(row, sampling, base, tokens, session.prompt_len, frozenset())
            tokens.append(token)
            laws.append(law)
        law = None if self._lawless else tuple(laws)
        return Proposal(request.key, base, tuple(tokens[base:]), law=law)
