"""Which tokens survive min_p, top_k and top_p, in vLLM's order (DESIGN §5).

Laws, with p_i proportional to exp((l_i - max l) / T) in fp64 and the order of `rank`:
min_p keeps p_i >= min_p * max p. top_k keeps the k first of the order, ties cut by id. top_p,
on what is left and renormalised, keeps a token while the mass before it is below top_p, so at
least one and the one that crosses.

Sorting 49k values would cost more than all the rest: the nucleus is looked for among the 256
largest, and the search widens only while their mass falls short. The result is the full sort's.
"""

from __future__ import annotations

import math

import torch

from actors.sampling.params import SamplingParams
from actors.sampling.rank import at_least, largest

_FIRST_LOOK = 256
_WIDEN = 8
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


def weights(values: torch.Tensor, top: float, temperature: float) -> torch.Tensor:
    """exp((l - top) / T) in fp64: subtract first, so that no temperature overflows (S20)."""
    return torch.sub(values.double(), top).div_(max(temperature, _COLDEST)).exp_()


def _min_p(row: torch.Tensor, top: float, params: SamplingParams) -> torch.Tensor:
    """Ids that pass, ascending: a slightly lower bound on the logits, then the law in fp64."""
    reach = params.temperature * -math.log(params.min_p)
    bound = top - reach - 1e-5 * (abs(top) + reach)
    ids = at_least(row, bound)
    return ids[weights(row[ids], top, params.temperature) >= params.min_p]


def _nucleus(
    values: torch.Tensor, top: float, params: SamplingParams
) -> tuple[torch.Tensor, torch.Tensor]:
    """(values, places) of the nucleus, in the order."""
    goal = params.top_p * float(weights(values, top, params.temperature).sum())
    look = _FIRST_LOOK
    while True:
        ranked, places = largest(values, look)
        mass = weights(ranked, top, params.temperature).cumsum(0)
        count = 1 + int((mass[:-1] < goal).sum())
        if count < look or look >= len(values):
            return ranked[:count], places[:count]
        look *= _WIDEN
