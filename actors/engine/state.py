"""The state specification: what each layer keeps between rounds (DESIGN §8).

Attention pages keys and values, which grow with the text. Recurrent layers carry a state of fixed
size for each running request, and note down the newest rows so that it can be rolled back to any of
them (`actors.engine.hybrid`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from actors.engine.errors import ModelLoadError

_ATTENTION = {"full_attention", "sliding_attention"}
_CONVOLUTION = {"lfm2", "lfm2_moe", "lfm3"}
_GATED_DELTA = {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}

MAX_DRAFT = 16
"""The longest block that targets with recurrent layers verify: each row of it has to be noted
down for every place."""


class Kept(NamedTuple):
    """One tensor of a recurrent layer's state. exact: it adds up over the whole text, so it is
    kept in float32 at least; else in the model's dtype."""

    shape: tuple[int, ...]
    exact: bool = False

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


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


@dataclass(frozen=True, slots=True)
class Convolution:
    """A gated short convolution (LFM2): the state is the last `kernel` - 1 rows of its input."""

    channels: int
    kernel: int

    @property
    def row_elements(self) -> int:
        """Nothing grows with the text."""
        return 0

    @property
    def carried(self) -> Mapping[str, Kept]:
        """The state after a row."""
        return {"window": Kept((self.kernel - 1, self.channels))}

    @property
    def noted(self) -> Mapping[str, Kept]:
        """What of one row is needed to go from the state before it to the state after it."""
        return {"inputs": Kept((self.channels,))}


@dataclass(frozen=True, slots=True)
class GatedDelta:
    """A gated delta net (Qwen3-Next, Qwen3.5): a convolution over queries, keys and values, and
    a matrix [key_dim, value_dim] for each value head, changed by one outer product a row."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def channels(self) -> int:
        """Of the convolution: queries, keys and values side by side."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def row_elements(self) -> int:
        """Nothing grows with the text."""
        return 0

    @property
    def carried(self) -> Mapping[str, Kept]:
        """The state after a row."""
        return {
            "window": Kept((self.kernel - 1, self.channels)),
            "memory": Kept((self.value_heads, self.key_dim, self.value_dim), exact=True),
        }

    @property
    def noted(self) -> Mapping[str, Kept]:
        """What of one row is needed to go from the state before it to the state after it."""
        return {
            "inputs": Kept((self.channels,)),
            "keys": Kept((self.key_heads, self.key_dim), exact=True),
            "writes": Kept((self.value_heads, self.value_dim), exact=True),
            "decay": Kept((self.value_heads,), exact=True),
        }


Recurrent = Convolution | GatedDelta
Layer = PagedKV | Recurrent


def is_recurrent(spec: tuple[Layer, ...]) -> bool:
    """Whether a layer carries a state that shared blocks of KV would not bring along."""
    return not all(isinstance(layer, PagedKV) for layer in spec)


def paged_layers(spec: tuple[Layer, ...]) -> tuple[PagedKV, ...]:
    """The same, for who can do with attention layers alone; raises ModelLoadError for others."""
    paged = tuple(layer for layer in spec if isinstance(layer, PagedKV))
    if len(paged) != len(spec):
        raise ModelLoadError(
            f"{len(spec) - len(paged)} of {len(spec)} layers carry a recurrent state; only models "
            "with attention layers throughout will do here",
            param="model",
        )
    return paged


def state_specification(config: Any) -> tuple[Layer, ...]:
    """One entry a layer, from a transformers config.

    Raises ModelLoadError, naming the layer kind, for states this engine cannot roll back (Mamba,
    other kinds of linear attention).
    """
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    layers = int(text.num_hidden_layers)
    kinds = list(getattr(text, "layer_types", None) or ["full_attention"] * layers)
    recurrent = _recurrent(text)
    foreign = sorted({kind for kind in kinds if kind not in _ATTENTION and kind not in recurrent})
    if foreign:
        raise ModelLoadError(
            f"{text.model_type}: layers of kind {', '.join(foreign)} keep a state that cannot be "
            "rolled back yet; served are attention throughout, LFM2's convolutions and the gated "
            "delta nets of Qwen3-Next and Qwen3.5",
            param="model",
        )
    heads = int(text.num_attention_heads)
    kv_heads = int(getattr(text, "num_key_value_heads", None) or heads)
    head_dim = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    window = getattr(text, "sliding_window", None)
    uniform = not getattr(text, "layer_types", None) and getattr(text, "use_sliding_window", True)
    return tuple(
        recurrent.get(kind)
        or PagedKV(
            kv_heads,
            head_dim,
            int(window) if window and (kind == "sliding_attention" or uniform) else None,
        )
        for kind in kinds
    )


def _recurrent(text: Any) -> dict[str, Recurrent]:
    """The recurrent layers of this family, by the name of their kind in `layer_types`."""
    family = getattr(text, "model_type", "")
    if family not in _CONVOLUTION | _GATED_DELTA:
        return {}
    if not getattr(text, "layer_types", None):
        raise ModelLoadError(f"{family}: the config does not say which layers attend", "model")
    if family in _CONVOLUTION:
        return {"conv": Convolution(int(text.hidden_size), int(text.conv_L_cache))}
    return {
        "linear_attention": GatedDelta(
            int(text.linear_num_key_heads),
            int(text.linear_num_value_heads),
            int(text.linear_key_head_dim),
            int(text.linear_value_head_dim),
            int(text.linear_conv_kernel_dim),
        )
    }
