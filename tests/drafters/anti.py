"""The worst drafter: always (right + 1) % vocab_size, so nothing is ever accepted."""

from __future__ import annotations

from typing import Any

from tests.drafters.base import NextToken
from tests.drafters.exact_k import ExactKDrafter


class AntiDrafter(ExactKDrafter):
    mechanism = "anti"

    def __init__(self, next_token: NextToken | None = None, vocab_size: int = 0, **kw: Any) -> None:
        super().__init__(next_token, vocab_size, k=0, **kw)
