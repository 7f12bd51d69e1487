"""A draft port that drafts nothing and keeps what the target thought while it wrote."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from typing_extensions import override

from actors.contracts import SessionView
from actors.engine.noport import NoDrafts


@dataclass(frozen=True, slots=True)
class Recorded:
    """tokens: prompt and answer; features: rows 0 … len(tokens)-2."""

    request_id: str
    tokens: tuple[int, ...]
    prompt_len: int
    features: torch.Tensor


class Recorder(NoDrafts):
    """Taps, and hands out each request that ended by itself; aborted ones are dropped."""

    def __init__(self, taps: tuple[int, ...]) -> None:
        self._taps = taps
        self._open: dict[str, SessionView] = {}
        self._ended: list[Recorded] = []

    @property
    @override
    def taps(self) -> tuple[int, ...]:
        return self._taps

    @override
    def open(self, view: SessionView) -> None:
        self._open[view.request_id] = view

    @override
    def close(self, request_id: str, reason: str) -> None:
        """The engine calls this while the request's rows are still in the pool."""
        view = self._open.pop(request_id, None)
        if view is None or reason not in ("stop", "length"):
            return
        tokens = tuple(view.tokens)
        rows = view.features(0, len(tokens) - 1)
        if rows is not None:
            self._ended.append(Recorded(request_id, tokens, view.prompt_len, rows))

    def take(self) -> list[Recorded]:
        """What has ended since the last call."""
        ended, self._ended = self._ended, []
        return ended
