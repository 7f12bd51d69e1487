"""The gated delta rule over a few rows at once, in a form that can be cut short afterwards.

Each head has a memory S [key_dim, value_dim]. Row i with key k, value v, log decay g and strength
beta does

    S ← e^g S        u = beta · (v - Sᵀk)        S ← S + k uᵀ        output = Sᵀq

With G_i the sum of g up to row i and S₀ the memory before the first row, all of it unrolls to

    u_i = beta_i · (v_i - e^{G_i} S₀ᵀk_i - Σ_{j<i} e^{G_i-G_j} (k_i·k_j) u_j)
    S_i = e^{G_i} S₀ + Σ_{j≤i} e^{G_i-G_j} k_j u_jᵀ

The first line is a triangular system. In the second, u_j depends on rows up to j alone: so whoever
keeps S₀ and the small (k, u, G) of each row can have S after any of them, the memory after a
rejected draft among them, with one product of matrices and without running the model again.

Source: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", arXiv 2412.06464.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from actors.engine.hybrid.convolution import slide

_EPSILON = 1e-6  # of the keys' and queries' norm; transformers' and flash-linear-attention's value


class Rows(NamedTuple):
    """Of n rows. queries, keys: [n, key_heads, key_dim]; values: [n, heads, value_dim]; decay (in
    logarithms) and strength: [n, heads]; each key head serves heads / key_heads value heads."""

    queries: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    decay: torch.Tensor
    strength: torch.Tensor


def delta_rule(
    rows: Rows, memory: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Outputs [n, heads, value_dim] after `memory` [heads, key_dim, value_dim], and what of the
    rows is to be noted: keys [n, key_heads, key_dim] (unit length), writes [n, heads, value_dim],
    decay [n, heads] (summed up from the first row). All in the memory's dtype."""
    dtype, heads = memory.dtype, memory.shape[0]
    keys = _unit(rows.keys.to(dtype))
    queries = _unit(rows.queries.to(dtype)) * keys.shape[-1] ** -0.5
    decay = rows.decay.to(dtype).cumsum(0)
    strength = rows.strength.to(dtype).T[..., None]  # [heads, n, 1]
    total = decay.T[..., None]
    q, k = _per_head(queries, heads), _per_head(keys, heads)
    v = rows.values.to(dtype).transpose(0, 1)

    # Between later rows i and earlier rows j; never above 1, so nothing overflows.
    between = (total - total.mT).tril().exp().tril()
    system = strength * (k @ k.mT) * between
    wanted = strength * (v - total.exp() * (k @ memory))
    writes = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
    outputs = total.exp() * (q @ memory) + ((q @ k.mT) * between) @ writes
    return outputs.transpose(0, 1), keys, writes.transpose(0, 1), decay


def remember(
    memory: torch.Tensor, keys: torch.Tensor, writes: torch.Tensor, decay: torch.Tensor
) -> torch.Tensor:
    """The memory [heads, key_dim, value_dim] after all the rows given, n ≥ 1, of those that
    `delta_rule` returned: any number from the first on."""
    total = decay.T[..., None]
    last = total[:, -1:]
    k = _per_head(keys, memory.shape[0]) * (last - total).exp()
    return last.exp() * memory + k.mT @ writes.transpose(0, 1)


def fold(
    carried: Mapping[str, torch.Tensor], noted: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The state of a `GatedDelta` layer after the rows noted down."""
    return {
        "window": slide(carried["window"], noted["inputs"]),
        "memory": remember(carried["memory"], noted["keys"], noted["writes"], noted["decay"]),
    }


def _unit(rows: torch.Tensor) -> torch.Tensor:
    return rows * torch.rsqrt(rows.square().sum(-1, keepdim=True) + _EPSILON)


def _per_head(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """[n, key_heads, dim] → [heads, n, dim]: each key head repeated for its value heads."""
    return rows.transpose(0, 1).repeat_interleave(heads // rows.shape[1], dim=0)
