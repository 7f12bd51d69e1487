"""This project's attention function for transformers' models, over the paged cache.

Registered through transformers' attention interface; the step's batch and the pool travel as a
keyword of the model call. Each call writes the new rows' keys and values into their slots, then
lets every segment attend to its own sequence. Rejected rows need no clean-up: they lie behind the
sequence's length and are overwritten by the next round.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from transformers import AttentionInterface

from actors.engine.batch import StepBatch
from actors.engine.errors import ModelLoadError
from actors.engine.kv import KVPool
from actors.engine.state import PagedKV

ATTENTION = "pilotfish_paged"


class Step(Protocol):
    """One forward's view of the cache: passed to the model as `paged_step`. layers: those that
    have mixed their rows, in order."""

    @property
    def pool(self) -> KVPool: ...

    @property
    def layers(self) -> list[int]: ...

    def attend(
        self,
        layer: int,
        query: torch.Tensor,  # [1, heads, rows, head_dim]
        key: torch.Tensor,  # [1, kv_heads, rows, head_dim]
        value: torch.Tensor,
        scaling: float | None,
        window: int | None,
    ) -> torch.Tensor:
        """Write the new keys and values; attention of the rows, [1, rows, heads, head_dim]."""
        ...


@dataclass(frozen=True, slots=True)
class PagedStep:
    """Rows as they come: each sequence's segment attends to its own sequence."""

    batch: StepBatch
    pool: KVPool
    layers: list[int] = field(default_factory=list)

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float | None,
        window: int | None,
    ) -> torch.Tensor:
        """See `Step`."""
        keys, values = self.pool.keys[layer], self.pool.values[layer]
        keys.index_copy_(0, self.batch.slots, key[0].transpose(0, 1))
        values.index_copy_(0, self.batch.slots, value[0].transpose(0, 1))
        out = torch.empty_like(query)
        for index, span in enumerate(self.batch.spans):
            rows = span.stop - span.start
            # A single row sees everything before it: no mask, only the window's start.
            first = max(0, span.kv_stop - window) if window and rows == 1 else 0
            mask = None if rows == 1 else self.batch.mask(index, window)
            out[:, :, span.start : span.stop] = F.scaled_dot_product_attention(
                query[:, :, span.start : span.stop],
                span.table.read(keys, first, span.kv_stop).transpose(0, 1)[None],
                span.table.read(values, first, span.kv_stop).transpose(0, 1)[None],
                attn_mask=mask,
                scale=scaling,
                enable_gqa=query.shape[1] != key.shape[1],
            )
        return out.transpose(1, 2)


def paged_attention(
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
    """Attention of packed rows; returns [1, rows, heads, head_dim]."""
    refuse_foreign(kwargs)
    step: Step | None = kwargs.get("paged_step")
    if step is None:
        raise ModelLoadError("this architecture does not hand its attention the cache", "model")
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    kept = step.pool.spec[layer]
    if not isinstance(kept, PagedKV):
        raise ModelLoadError(f"layer {layer} attends, and is {kept} in the config", "model")
    if (sliding_window or None) != kept.window:
        raise ModelLoadError(
            f"layer {layer} has a window of {kept.window} in the config and asks attention for "
            f"{sliding_window}",
            param="model",
        )
    step.layers.append(layer)
    return step.attend(layer, query, key, value, scaling, sliding_window), None


def refuse_foreign(kwargs: dict[str, Any]) -> None:
    """A model that asks attention for what this function does not do is refused by name."""
    for name in ("softcap", "s_aux", "position_bias"):
        if kwargs.get(name) is not None:
            raise ModelLoadError(f"attention with {name} is not supported", param="model")


AttentionInterface.register(ATTENTION, paged_attention)
