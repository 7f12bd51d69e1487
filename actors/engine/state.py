"""The state specification: what each layer keeps between rounds, and whether it can be rolled
back to a shorter prefix (DESIGN §8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from actors.engine.errors import ModelLoadError

_ATTENTION = {"full_attention", "sliding_attention"}


@dataclass(frozen=True, slots=True)
class PagedKV:
    """Keys and values of one attention layer, paged. Rollback is free: the length decides what
    is live, and rejected rows are overwritten. A window only limits what a row may see; the rows
    before it are kept, so that a rejected block never evicts what the next round needs."""

    kv_heads: int
    head_dim: int
    window: int | None = None

    @property
    def row_elements(self) -> int:
        """Numbers kept for one token in this layer (keys and values)."""
        return 2 * self.kv_heads * self.head_dim


def state_specification(config: Any) -> tuple[PagedKV, ...]:
    """One entry a layer, from a transformers config.

    Raises ModelLoadError, naming the layer kind, for states this engine cannot roll back
    (linear attention, Mamba, convolutions).
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    layers = int(text.num_hidden_layers)
    kinds = list(getattr(text, "layer_types", None) or ["full_attention"] * layers)
    foreign = sorted({kind for kind in kinds if kind not in _ATTENTION})
    if foreign:
        raise ModelLoadError(
            f"{text.model_type}: layers of kind {', '.join(foreign)} keep a state that cannot be "
            "rolled back yet; only models with attention layers throughout are served",
            param="model",
        )
    heads = int(text.num_attention_heads)
    kv_heads = int(getattr(text, "num_key_value_heads", None) or heads)
    head_dim = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    window = getattr(text, "sliding_window", None)
    uniform = not getattr(text, "layer_types", None) and getattr(text, "use_sliding_window", True)
    return tuple(
        PagedKV(
            kv_heads,
            head_dim,
            int(window) if window and (kind == "sliding_attention" or uniform) else None,
        )
        for kind in kinds
    )
