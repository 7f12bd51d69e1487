"""How packed rows of many sessions attend when drafting.

Rows start … stop-1 of a span belong to one session. Committed rows live in its `SessionKV`; a
block of DFlash's kind is scratch and lives in nothing but its own forward.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from actors.drafters.external_kv import Span


class Causal:
    """Each span's rows are written at its offset; a row sees its session up to itself."""

    def __init__(self, spans: Sequence[Span], window: int | None = None) -> None:
        self._spans = spans
        self._window = window

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """q [rows, heads, dim], k and v [rows, kv_heads, dim] -> [rows, heads, dim]."""
        out = torch.empty_like(q)
        for span in self._spans:
            rows = slice(span.start, span.stop)
            keys, values = span.kv.write(
                layer, span.offset, k[rows].transpose(0, 1), v[rows].transpose(0, 1)
            )
            mask = _band(span.stop - span.start, keys.shape[1], self._window, q.device)
            out[rows] = attention(q[rows], keys, values, mask)
        return out


class Block:
    """Spans see the first `offset` rows of their session's KV and their own rows: all of them, or
    up to themselves when `causal`. Nothing is written."""

    def __init__(
        self, spans: Sequence[Span], *, causal: bool = False, window: int | None = None
    ) -> None:
        self._spans = spans
        self._causal = causal
        self._window = window

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        out = torch.empty_like(q)
        for span in self._spans:
            rows, count = slice(span.start, span.stop), span.stop - span.start
            own_k, own_v = k[rows].transpose(0, 1), v[rows].transpose(0, 1)
            first = 0
            if span.offset:
                old_k, old_v = span.kv.read(layer, span.offset)
                if self._window and not self._causal:  # the block reaches back so far as a whole
                    first = max(0, span.offset + count - self._window)
                own_k = torch.cat((old_k[:, first:], own_k), 1)
                own_v = torch.cat((old_v[:, first:], own_v), 1)
            mask = None
            if self._causal:
                mask = _band(count, own_k.shape[1], self._window, q.device)
            out[rows] = attention(q[rows], own_k, own_v, mask)
        return out


def attention(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor:
    """q [rows, heads, dim], keys and values [kv_heads, total, dim] -> [rows, heads, dim]."""
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys[None],
        values[None],
        attn_mask=mask,
        enable_gqa=q.shape[1] != keys.shape[0],
    )
    return out[0].transpose(0, 1)


def _band(rows: int, total: int, window: int | None, device: torch.device) -> torch.Tensor | None:
    """[rows, total]: the last rows of `total` positions, each seeing itself and what is before,
    at most `window` positions; None where everything is seen."""
    if rows == 1 and (not window or total <= window):
        return None
    seen = torch.ones(rows, total, dtype=torch.bool, device=device).tril(total - rows)
    return seen if not window else seen.triu(total - rows - window + 1)
