"""The target's law of one row, after all of the row's processors and cuts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from actors.sampling.choose import check_top
from actors.sampling.law import TokenLaw
from actors.sampling.params import SamplingParams
from actors.sampling.processors import Processors
from actors.sampling.support import support, weights


@dataclass(frozen=True, slots=True)
class RowLaw:
    """weights: relative, fp64 [V], 0 for what is cut off; total: their sum."""

    weights: torch.Tensor
    total: float

    def of(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """p of these ids, fp64 [len(ids)]; 0 for one that is no token."""
        known = (ids >= 0) & (ids < len(self.weights))
        p = np.zeros(len(ids))
        at = torch.from_numpy(ids[known]).to(self.weights.device)
        p[known] = self.weights[at].cpu().numpy() / self.total
        return p

    def residual(self, law: TokenLaw, scale: float) -> torch.Tensor:
        """max(scale · p − q, 0), relative, fp64 [V]; p itself where nothing is left (S14)."""
        known = (law.ids >= 0) & (law.ids < len(self.weights))
        device = self.weights.device
        ids = torch.from_numpy(law.ids[known]).to(device)
        q = torch.from_numpy(law.masses[known]).to(device)
        rest = self.weights * scale
        rest[ids] = (rest[ids] - q * self.total).clamp_(min=0.0)
        return rest if bool((rest > 0.0).any()) else self.weights


def row_law(
    logits: torch.Tensor, process: Processors, params: SamplingParams, position: int
) -> RowLaw:
    """Of the token at absolute `position`; logits [V], temperature > 0. Raises BadLogits."""
    if process.active:
        check_top(float(logits.max()), position)  # a mask may hide what is wrong with the row
    row = process(logits)
    top = float(row.max())
    check_top(top, position)
    values, ids = support(row, top, params)
    mass = weights(values, top, params.temperature)
    if ids is not None:
        mass = torch.zeros(len(row), dtype=mass.dtype, device=mass.device).scatter_(0, ids, mass)
    return RowLaw(mass, float(mass.sum()))
