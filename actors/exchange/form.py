"""The form in which features cross the wire: as tapped, or already through the drafter's own first
map, and in bf16 or fp8 (DESIGN §7, Bytes).

A verifier keeps raw features with its KV blocks, whoever drafts; the form is made where frames are
made, on the sending thread, so that a long prompt's rows never stand in the engine's way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors.drafters.config import FeatureDtype

if TYPE_CHECKING:
    import torch

CHUNK_ROWS = 256
"""Rows of a seed that are formed at a time."""


@dataclass(frozen=True, slots=True)
class Projection:
    """A drafter's first map, if it is linear and the same for all its layers. map: [n, taps ·
    hidden] -> [n, width]. digest: of its weights; both sides must have the same."""

    map: Callable[[torch.Tensor], torch.Tensor]
    width: int
    digest: str


@dataclass(frozen=True, slots=True)
class FeatureForm:
    """How rows [n, taps · hidden] become what is sent."""

    projection: Projection | None = None
    dtype: FeatureDtype = "bf16"

    @property
    def digest(self) -> str:
        """What a drafter must expect; empty for rows as they were tapped."""
        return self.projection.digest if self.projection is not None else ""

    @property
    def plain(self) -> bool:
        return self.projection is None and self.dtype == "bf16"

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        if self.projection is not None:
            rows = self.projection.map(rows)
        if self.dtype == "fp8":
            from actors.exchange import fp8

            return fp8.pack(rows)
        return rows.bfloat16()
