"""Tiny random targets that mix attention with recurrence, of transformers' own classes."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    Lfm2Config,
    Lfm2MoeConfig,
    Lfm3Config,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
)

from tests.models import BARE

HYBRIDS: dict[str, Any] = {
    "lfm2": Lfm2Config,
    "qwen3_next": Qwen3NextConfig,
    "qwen3_5": Qwen3_5TextConfig,
}
RELATIVES: dict[str, Any] = {
    "lfm2_moe": Lfm2MoeConfig,
    "lfm3": Lfm3Config,
    "qwen3_5_moe": Qwen3_5MoeTextConfig,
}
"""With the layers of the others, and experts or windows besides."""

_COMMON: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.3,
}
_EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
_CONVOLUTIONS: dict[str, Any] = {
    "layer_types": ["conv", "full_attention", "conv", "conv"],
    "conv_L_cache": 4,
}
_DELTA_NETS: dict[str, Any] = {
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
_SIZES: dict[str, dict[str, Any]] = {
    "lfm2": {**_CONVOLUTIONS, "block_auto_adjust_ff_dim": False},
    "lfm2_moe": {**_CONVOLUTIONS, **_EXPERTS, "num_dense_layers": 1},
    "lfm3": {
        **_CONVOLUTIONS,
        "layer_types": ["conv", "full_attention", "conv", "sliding_attention"],
        "sliding_window": 6,
    },
    "qwen3_next": {**_DELTA_NETS, **_EXPERTS, "shared_expert_intermediate_size": 32},
    "qwen3_5": _DELTA_NETS,
    "qwen3_5_moe": {**_DELTA_NETS, **_EXPERTS, "shared_expert_intermediate_size": 32},
}


def make_hybrid(family: str, dtype: torch.dtype = torch.float64, seed: int = 0, **kw: Any) -> Any:
    """A random model of four layers whose recurrent states remember dozens of tokens, where
    transformers' own initial decay forgets in two."""
    settings = {**BARE, **_COMMON, **_SIZES[family], **kw}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = (HYBRIDS | RELATIVES)[family](**settings)
        model = AutoModelForCausalLM.from_config(config, experts_implementation="eager")
        for name, weight in model.named_parameters():
            if name.endswith("A_log"):
                torch.nn.init.uniform_(weight, -4.0, -2.0)
            elif name.endswith(("conv.weight", "conv1d.weight")):
                torch.nn.init.normal_(weight, std=0.5)
    return model.to(dtype).eval()
