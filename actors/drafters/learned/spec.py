"""The shape of a learned drafter's decoder layers; plain values, read from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ROPE: Mapping[str, Any] = {"rope_type": "default", "rope_theta": 10000.0}


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One Llama- or Qwen3-style decoder layer.

    rope: transformers' `rope_parameters`. interleaved: RoPE turns neighbours, not halves.
    norm_offset: what is added to every norm's weight: 1 in Gemma and Qwen3-Next. window: how many
    positions a query sees, itself included; None is all of them.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    eps: float = 1e-6
    qk_norm: bool = False
    attention_bias: bool = False
    norm_offset: float = 0.0
    max_context: int = 0
    window: int | None = None
    interleaved: bool = False
    rope: Mapping[str, Any] = field(default_factory=lambda: ROPE)
