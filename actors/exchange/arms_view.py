"""A request as one of several drafters sees it: with its own of the features that are tapped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors.contracts import SessionView
from actors.sampling.params import SamplingParams

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Columns:
    """Where a drafter's taps stand among the `of` taps of a feature row."""

    places: tuple[int, ...]
    of: int

    @staticmethod
    def among(taps: Sequence[int], united: Sequence[int]) -> Columns:
        """united: every tap of `taps` is one of these."""
        return Columns(tuple(united.index(tap) for tap in taps), len(united))

    def cut(self, rows: torch.Tensor | None) -> torch.Tensor | None:
        """[rows, of · hidden] -> [rows, len(places) · hidden]; None for whom nothing is tapped."""
        if rows is None or not self.places:
            return None
        if self.places == tuple(range(self.of)):
            return rows
        count, hidden = rows.shape[0], rows.shape[1] // self.of
        mine = rows.reshape(count, self.of, hidden)[:, list(self.places)]
        return mine.reshape(count, len(self.places) * hidden)


@dataclass(slots=True)
class PartView:
    """Implements `actors.contracts.SessionView` over another. first: while a session is opened, how
    many tokens it is opened with; the newest are then told with the commit that asks."""

    view: SessionView
    columns: Columns
    first: int | None = None

    @property
    def request_id(self) -> str:
        return self.view.request_id

    @property
    def tokens(self) -> Sequence[int]:
        tokens = self.view.tokens
        whole = self.first is None or self.first == len(tokens)
        return tokens if whole else tokens[: self.first]

    @property
    def prompt_len(self) -> int:
        return self.view.prompt_len

    @property
    def sampling(self) -> SamplingParams:
        return self.view.sampling

    @property
    def tenant(self) -> str:
        return self.view.tenant

    @property
    def trace(self) -> tuple[str, str]:
        return self.view.trace

    def features(self, from_row: int, to_row: int) -> torch.Tensor | None:
        if not self.columns.places:
            return None
        return self.columns.cut(self.view.features(from_row, to_row))
