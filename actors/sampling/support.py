"""Which tokens survive min_p, top_k and top_p, in vLLM's order (DESIGN §5).

Laws, with p_i proportional to exp((l_i - max l) / T) in fp64 and the order of `rank`:
min_p keeps p_i >= min_p * max p. top_k keeps the k first of the order, ties cut by id. top_p,
on what is left and renormalised, keeps a token while the mass before it is below top_p, so at
least one and the one that crosses.

Sorting 49k values would cost more than all the rest: the nucleus is looked for among the 256
largest, and only when their mass falls short in bins over the whole row. Either way the result is
the full sort's.
"""

from __future__ import annotations

import math

import torch

from actors.sampling.params import SamplingParams
from actors.sampling.rank import equal_before, largest, sum_where

_SURELY = 1.0 + 2.0**-12  # more than all rounding of fp32 sums over a vocabulary
_LOOK = 256
_BINS = 4096
_BINS_PER_UNIT = 64.0  # of (top - l) / T: 64 units span e^-64, far below any mass that counts
_COLDEST = 1e-300  # its reciprocal is finite, for devices that divide by multiplying


def support(
    row: torch.Tensor, top: float, params: SamplingParams
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(values, ids) of the survivors, in no promised order; ids None means the whole row.

    row: processed logits [V], fp32 or fp64, not yet divided by the temperature; top: its maximum,
    finite. temperature > 0.
    """
    values, ids = row, None
    if params.min_p > 0.0:
        ids = _min_p(row, top, params)
        values = row[ids]
    if 0 < params.top_k < len(values):
        values, kept = largest(values, params.top_k)
        ids = kept if ids is None else ids[kept]
    if params.top_p < 1.0:
        values, kept = _nucleus(values, top, params)
        ids = kept if ids is None else ids[kept]
    return values, ids


def in_nucleus(token: int, row: torch.Tensor, p: torch.Tensor, top_p: float) -> bool | None:
    """Whether top_p alone keeps a token, for a fraction of what finding the nucleus costs; None
    where fp32 cannot tell.

    p: exp((row - top) / T), fp32 [V], to a relative 2^-16 where it counts.
    """
    before = sum_where(p, row > row[token]) + equal_before(row, token) * float(p[token])
    goal = top_p * float(p.sum())
    if before * _SURELY < goal:
        return True
    return False if before >= goal * _SURELY else None


def weights(values: torch.Tensor, top: float, temperature: float) -> torch.Tensor:
    """exp((l - top) / T) in fp64: subtract first, so that no temperature overflows (S20)."""
    return torch.sub(values.double(), top).div_(max(temperature, _COLDEST)).exp_()


def _min_p(row: torch.Tensor, top: float, params: SamplingParams) -> torch.Tensor:
    """Ids that pass, ascending: a slightly lower bound on the logits, then the law in fp64."""
    reach = params.temperature * -math.log(params.min_p)
    bound = top - reach - 1e-5 * (abs(top) + reach)
    ids = (row >= bound).nonzero().view(-1)
    return ids[weights(row[ids], top, params.temperature) >= params.min_p]


def _nucleus(
    values: torch.Tensor, top: float, params: SamplingParams
) -> tuple[torch.Tensor, torch.Tensor]:
    """(values, places) of the nucleus."""
    mass = weights(values, top, params.temperature)
    goal = params.top_p * float(mass.sum())
    ranked, places = largest(values, _LOOK)
    count = _crossing(mass[places], 0.0, goal)
    if count == _LOOK < len(values):
        places = _wide_nucleus(values, mass, (top - values) / params.temperature, goal)
        return values[places], places
    return ranked[:count], places[:count]


def _crossing(mass: torch.Tensor, before: float, goal: float) -> int:
    """How many of these in turn are needed, after a mass of `before`, to reach the goal."""
    return 1 + int((mass.cumsum(0)[:-1] + before < goal).sum())


def _wide_nucleus(
    values: torch.Tensor, mass: torch.Tensor, depth: torch.Tensor, goal: float
) -> torch.Tensor:
    """Places of a nucleus too wide to rank: bins by depth below the top, a monotone function of
    the value, tell which are in whole; only the bin where the mass crosses is ranked."""
    bins = depth.mul(_BINS_PER_UNIT).clamp_(max=_BINS - 1).long()
    mass_to = torch.bincount(bins, weights=mass, minlength=_BINS).cumsum(0)
    crossed = min(int((mass_to < goal).sum()), _BINS - 1)
    inside = (bins < crossed).nonzero().view(-1)
    edge = (bins == crossed).nonzero().view(-1)
    edge = edge[largest(values[edge], len(edge))[1]]
    before = float(mass_to[crossed - 1]) if crossed else 0.0
    return torch.cat((inside, edge[: _crossing(mass[edge], before, goal)]))
