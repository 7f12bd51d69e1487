"""How packed rows of many sessions attend when drafting.

Rows start … stop-1 of a span belong to one session. Committed rows live in its `SessionKV`; a
block's are scratch behind them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from actors.drafters.external_kv import Span


class Causal:
    """Each span's rows are written at its offset; a row sees its session up to itself."""

    def __init__(self, spans: Sequence[Span], window: int | None = None) -> None:
        self.spans = spans
        self._window = window

    def mask(self, layer: int) -> tuple[bool, int | None]:
        """(causal, window) of a layer."""
        return True, self._window

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """q [rows, heads, dim], k and v [rows, kv_heads, dim], where v's dim may be another ->
        [rows, heads, v's dim]."""
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        for span in self.spans:
            rows = slice(span.start, span.stop)
            keys, values = span.kv.write(
                layer, span.offset, k[rows].transpose(0, 1), v[rows].transpose(0, 1)
            )
            mask = _band(span.stop - span.start, keys.shape[1], self._window, q.device)
            out[rows] = attention(q[rows], keys, values, mask)
        return out


class Block:
    """Spans see the first `offset` rows of their session's KV and their own rows: all of them, or
    up to themselves where a layer is causal. Their own lie behind those of committed rows, where
    the next absorb overwrites them.

    masks: for each layer (causal, window); one entry is for all layers.
    """

    def __init__(
        self, spans: Sequence[Span], masks: Sequence[tuple[bool, int | None]] = ((False, None),)
    ) -> None:
        self.spans = spans
        self._masks = masks

    def mask(self, layer: int) -> tuple[bool, int | None]:
        """(causal, window) of a layer."""
        return self._masks[layer if len(self._masks) > 1 else 0]

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        causal, window = self.mask(layer)
        out = q.new_empty(*q.shape[:-1], v.shape[-1])
        for span in self.spans:
            rows, count = slice(span.start, span.stop), span.stop - span.start
            keys, values = span.kv.write(
                layer, span.offset, k[rows].transpose(0, 1), v[rows].transpose(0, 1)
            )
            if window and keys.shape[1] - count >= window:  # nobody sees what is before
                first = keys.shape[1] - count - window + 1
                keys, values = keys[:, first:], values[:, first:]
            mask = _band(count, keys.shape[1], window, q.device, causal=causal)
            out[rows] = attention(q[rows], keys, values, mask)
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


def _band(
    rows: int, total: int, window: int | None, device: torch.device, *, causal: bool = True
) -> torch.Tensor | None:
    """[rows, total]: what the last rows of `total` positions see: those at a distance below
    `window`, and none behind themselves where `causal`. None where everything is seen."""
    narrow = bool(window) and total > (window or 0)
    if not narrow and (rows == 1 or not causal):
        return None
    seen = torch.ones(rows, total, dtype=torch.bool, device=device)
    if causal:
        seen = seen.tril(total - rows)
    if window:
        seen = seen.triu(total - rows - window + 1).tril(total - rows + window - 1)
    return seen
