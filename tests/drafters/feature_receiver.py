"""Asks for hidden states and keeps exactly the rows it was given, checked for gaps."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from actors.contracts import Commit, DrafterError, DrafterInfo, OpenSession, SessionKey
from tests.drafters.base import NextToken, Session, TokenDrafter


class FeatureReceiver(TokenDrafter):
    """rows: live sessions' features; log: the same, kept after close for the test to look at.

    Invariant: a session with n committed tokens has rows 0 … n-2, each received once.
    """

    mechanism = "feature-receiver"

    def __init__(
        self,
        taps: Sequence[int] | str = (1,),
        vocab_size: int = 0,
        next_token: NextToken | None = None,
    ) -> None:
        super().__init__(vocab_size)
        self.taps = tuple(int(t) for t in (taps.split(",") if isinstance(taps, str) else taps))
        self._next_token = next_token
        self.rows: dict[SessionKey, list[torch.Tensor]] = {}
        self.log: dict[SessionKey, list[torch.Tensor]] = {}
        self.faults: list[str] = []

    @property
    def info(self) -> DrafterInfo:
        return DrafterInfo(
            self.mechanism,
            "test",
            vocab_size=self.vocab_size,
            needs_features=True,
            taps=self.taps,
            max_block=self.max_block,
        )

    def open(self, sessions: Sequence[OpenSession]) -> None:
        super().open(sessions)
        for s in sessions:
            self.rows[s.key] = self.log[s.key] = []
            self._take(s.key, s.features, 0, len(s.tokens) - 1)

    def observe(self, commits: Sequence[Commit]) -> None:
        super().observe(commits)
        for c in commits:
            self._take(c.key, c.features, c.from_len - 1, len(c.tokens))

    def _take(
        self, key: SessionKey, features: torch.Tensor | None, from_row: int, count: int
    ) -> None:
        have = sum(part.shape[0] for part in self.rows[key])
        given = 0 if features is None else features.shape[0]
        if have != from_row or given != count:
            fault = f"{key}: have {have} rows, given {given} from row {from_row}, want {count}"
            self.faults.append(fault)
            raise DrafterError(fault, [key])
        if features is not None:
            self.rows[key].append(features.clone())

    def received(self, key: SessionKey) -> torch.Tensor:
        """All rows of a session, closed or not: shape [rows, F]."""
        return torch.cat(self.log[key])

    def close(self, key: SessionKey) -> None:
        super().close(key)
        self.rows.pop(key, None)

    def block(self, session: Session, depth: int) -> list[int]:
        if self._next_token is None:
            return []
        tokens = list(session.tokens)
        for _ in range(depth):
            tokens.append(self._next_token(tokens, session.sampling))
        return tokens[len(session.tokens) :]
