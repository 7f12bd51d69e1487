"""Rows of many sessions, packed flat for one forward."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from actors.drafters.external_kv import SessionKV, Span


class Pack:
    """Part i is `count` rows of a session, at positions `first` …, whose keys and values go to
    KV rows `offset` …."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tokens: list[int] = []
        self._positions: list[int] = []
        self.spans: list[Span] = []

    def add(self, kv: SessionKV, tokens: Sequence[int], first: int, offset: int) -> None:
        """Rows that embed `tokens`, the first of them at position `first`."""
        start = len(self._tokens)
        self._tokens.extend(tokens)
        self._positions.extend(range(first, first + len(tokens)))
        self.spans.append(Span(kv, offset, start, len(self._tokens)))

    @property
    def tokens(self) -> torch.Tensor:
        """int64 [rows]"""
        return torch.tensor(self._tokens, device=self._device)

    @property
    def positions(self) -> torch.Tensor:
        """int64 [rows]"""
        return torch.tensor(self._positions, device=self._device)

    @property
    def ends(self) -> torch.Tensor:
        """The last row of each part, int64 [parts]."""
        return torch.tensor([span.stop - 1 for span in self.spans], device=self._device)
