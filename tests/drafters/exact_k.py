"""Right k times, then wrong: every round accepts exactly min(k, D)."""

from __future__ import annotations

from typing import Any

from tests.drafters.base import NextToken, Session
from tests.drafters.knowing import KnowingDrafter


class ExactKDrafter(KnowingDrafter):
    """After the k right tokens come (right + 1) % vocab_size and what follows from it."""

    mechanism = "exact-k"

    def __init__(
        self, next_token: NextToken | None = None, vocab_size: int = 0, k: int = 1, **kw: Any
    ) -> None:
        super().__init__(next_token, vocab_size, **kw)
        assert self.vocab_size > 1
        self.k = k

    def block(self, session: Session, depth: int) -> list[int]:
        tokens = list(session.tokens)
        for i in range(depth):
            right = self.right(session, tokens)
            tokens.append(right if i < self.k else (right + 1) % self.vocab_size)
        return tokens[len(session.tokens) :]
