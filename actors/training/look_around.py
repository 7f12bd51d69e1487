"""Where EAGLE-3's attention begins to look: at its own entry, the one before it, and the places
where the newest token stood earlier.

The newest token's embedding reaches the draft through attention alone, and what followed it earlier
is the best guess of what follows it now (induction). Projections from noise find neither in a run
of minutes. A head that began two entries back was of no use after 1.2 million positions of SmolLM2:
acceptance length 2.26 with it and 2.28 without, on 20 answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from actors.drafters.learned.blocks import Attention
from actors.training.chain_models import EagleChain
from actors.training.examples import Example
from actors.training.look_back import FAST, constant
from actors.training.packing import context_rows

PEAK = 6.0
"""Of a query and a key on each fast frequency: the entry looked for has nine tenths of a head."""
SLOW = 2e-3
"""Radians a position: below it, RoPE leaves two rows of one text comparable."""
MATCH = 2.1
"""Of canonical variates in query and key: a token met again outweighs some hundred others."""
_ENOUGH, _RIDGE = 48, 1e-3


@torch.no_grad()
def look_around(chain: EagleChain, embedding: torch.Tensor, examples: Sequence[Example]) -> None:
    """About half of the KV heads begin at the own entry, the next one at the entry before, the rest
    at earlier places of the same token. embedding: the target's."""
    some = list(examples[:_ENOUGH])
    features, _ = context_rows(some, chain.columns)
    own, after = (torch.cat([e.tokens[i : e.length - 2 + i] for e in some]) for i in (0, 1))
    rows = chain.read(embedding[after], features)
    normed = chain.layer.input_layernorm(embedding[own])
    looks = _Looks(chain.layer.self_attn, constant(rows), _angles(chain))
    heads = looks.attention.spec.kv_heads
    near = max(1, heads // 2)
    for head, back in enumerate((*(0,) * near, 1)[:heads]):
        looks.back(head, back)
    for head in range(min(near + 1, heads), heads):
        looks.same(head, rows, normed, head - near - 1)


@dataclass(frozen=True, slots=True)
class _Looks:
    """direction: u with u · x close to one for what is read. angles: of one position, [dim / 2]."""

    attention: Attention
    direction: torch.Tensor
    angles: torch.Tensor

    def back(self, head: int, distance: int) -> None:
        """At the entry so far back, whatever it holds."""
        fast = (self.angles > FAST).float() * PEAK
        turned = distance * self.angles
        query = torch.cat((fast * turned.cos(), -fast * turned.sin()))
        key = torch.cat((fast, torch.zeros_like(fast)))
        self._set(head, query[:, None] * self.direction, key[:, None] * self.direction)

    def same(self, head: int, rows: torch.Tensor, own: torch.Tensor, which: int) -> None:
        """At entries whose row is of the query's newest token. rows: what is read of entries
        [n, 2 · hidden]; own: the normed embedding of each row's own token. which: of such heads."""
        slow = (self.angles < SLOW).nonzero().flatten()
        places = torch.cat((slow, slow + len(self.angles)))
        size, hidden = len(places), own.shape[1]
        of_token, of_row = _canonical(own, rows[:, hidden:], (which + 1) * size)
        query, key = (torch.zeros(self.attention.spec.head_dim, 2 * hidden) for _ in range(2))
        for weight, maps, columns, mean in (
            (query, of_token, slice(0, hidden), own.mean(0)),
            (key, of_row, slice(hidden, None), rows[:, hidden:].mean(0)),
        ):
            mine = MATCH * maps[which * size :]
            weight[places, columns] = mine
            weight[places] -= (mine @ mean)[:, None] * self.direction
        self._set(head, query, key)

    def _set(self, head: int, query: torch.Tensor, key: torch.Tensor) -> None:
        spec = self.attention.spec
        group = spec.heads // spec.kv_heads
        wide, one = group * spec.head_dim, spec.head_dim
        self.attention.k_proj.weight[head * one : (head + 1) * one] = key
        self.attention.q_proj.weight[head * wide : (head + 1) * wide] = query.repeat(group, 1)


def _angles(chain: EagleChain) -> torch.Tensor:
    """Radians of one position, [head_dim / 2]."""
    cosines, sines = chain.module.rope(torch.ones(1, dtype=torch.long))
    return torch.atan2(sines.flatten(), cosines.flatten())


def _canonical(x: torch.Tensor, y: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The maps [count, width] of x and y [n, width] to their most correlated variates of size one
    (Hotelling 1936)."""
    x, y = x - x.mean(0), y - y.mean(0)
    white_x, white_y = _whitening(x), _whitening(y)
    left, _, right = torch.linalg.svd(white_x.T @ (x.T @ y / len(x)) @ white_y)
    return (white_x @ left[:, :count]).T, (white_y @ right[:count].T).T


def _whitening(x: torch.Tensor) -> torch.Tensor:
    """[width, width] that brings centred x [n, width] to unit covariance."""
    covariance = x.T @ x / len(x)
    covariance += _RIDGE * covariance.diagonal().mean() * torch.eye(x.shape[1])
    values, vectors = torch.linalg.eigh(covariance)
    white: torch.Tensor = vectors * values.clamp(min=1e-9).rsqrt()
    return white
