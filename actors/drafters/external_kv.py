"""A draft model's own KV: contiguous rows a session, and the attention function that fills them.

Rows of many sessions are packed flat into one forward; each span writes its keys and values at its
own offset and attends to its own session. Rollback is a shorter length: stale rows lie behind it
and are overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface

from actors.drafters.errors import DrafterLoadError
from actors.engine.sizing import row_bytes
from actors.engine.state import paged_layers, state_specification

ATTENTION = "pilotfish_draft"
_ROWS = 64
"""Capacities are multiples of it: kernels may read a few rows past the last."""
_UNSUPPORTED = ("softcap", "s_aux", "position_bias")


class SessionKV:
    """Keys and values of one session: for each layer [kv_heads, capacity, head_dim]. Shapes come
    with the first write; capacity doubles."""

    def __init__(self) -> None:
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def write(
        self, layer: int, offset: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Put rows [kv_heads, n, head_dim] at `offset`; views of rows 0 … offset + n - 1."""
        end = offset + key.shape[1]
        keys, values = self.room(layer, end, key, value)
        keys[:, offset:end] = key
        values[:, offset:end] = value
        return keys[:, :end], values[:, :end]

    def room(
        self, layer: int, rows: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The layer's memory, of at least so many rows like those of `key` and `value`."""
        held = self._layers.get(layer)
        if held is None or held[0].shape[1] < rows:
            held = (_grown(held and held[0], key, rows), _grown(held and held[1], value, rows))
            self._layers[layer] = held
        return held

    def read(self, layer: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of rows 0 … stop-1, which have been written."""
        keys, values = self._layers[layer]
        return keys[:, :stop], values[:, :stop]

    @property
    def rows(self) -> int:
        """Rows there is memory for."""
        return max((keys.shape[1] for keys, _ in self._layers.values()), default=0)


def token_bytes(model: Any) -> int:
    """What one token of a session takes at most: capacity doubles, so half of it may be unused."""
    return 2 * row_bytes(paged_layers(state_specification(model.config)), model.dtype, 0)


def _grown(old: torch.Tensor | None, like: torch.Tensor, rows: int) -> torch.Tensor:
    have = 0 if old is None else old.shape[1]
    capacity = max(2 * have, -(-rows // _ROWS) * _ROWS)
    new = like.new_empty(like.shape[0], capacity, like.shape[2])
    if old is not None:
        new[:, :have] = old
    return new


@dataclass(frozen=True, slots=True)
class Span:
    """Rows start … stop-1 of the packed batch are positions offset … of one session."""

    kv: SessionKV
    offset: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class DraftStep:
    """One forward's sessions: passed to the model as `draft_step`."""

    spans: Sequence[Span]


def draft_attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # [1, heads, rows, head_dim]
    key: torch.Tensor,  # [1, kv_heads, rows, head_dim]
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each span's session; returns [1, rows, heads, head_dim]."""
    for name in _UNSUPPORTED:
        if kwargs.get(name) is not None:
            raise DrafterLoadError(f"attention with {name} is not supported", "model")
    step: DraftStep = kwargs["draft_step"]
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    out = query.new_empty(*query.shape[:3], value.shape[3])
    for span in step.spans:
        rows = slice(span.start, span.stop)
        keys, values = span.kv.write(layer, span.offset, key[0, :, rows], value[0, :, rows])
        count = span.stop - span.start
        # A single row sees all before it: no mask, only the window's start.
        first = max(0, keys.shape[1] - sliding_window) if sliding_window and count == 1 else 0
        mask = None
        if count > 1:
            mask = _causal(count, keys.shape[1], sliding_window, query.device)
        out[:, :, rows] = F.scaled_dot_product_attention(
            query[:, :, rows],
            keys[None, :, first:],
            values[None, :, first:],
            attn_mask=mask,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
    return out.transpose(1, 2), None


def _causal(rows: int, total: int, window: int | None, device: torch.device) -> torch.Tensor:
    """[rows, total]: the last `rows` of `total` positions, each seeing itself and what is before,
    at most `window` positions in all."""
    seen = torch.ones(rows, total, dtype=torch.bool, device=device).tril(total - rows)
    return seen if not window else seen.triu(total - rows - window + 1)


AttentionInterface.register(ATTENTION, draft_attention)
