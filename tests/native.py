"""The compiled executor for tests: built once a run, and models of its family."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from actors.engine.attention import ATTENTION
from actors.engine.native.build import find_compiler, load
from actors.engine.native.library import Library
from actors.engine.native.target import NativeTarget
from actors.engine.target import Target
from tests.models import BARE

needs_compiler = pytest.mark.skipif(not find_compiler(), reason="no C++ compiler")

VOCAB = 120  # no multiple of a panel's 16 columns
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 1}),
    "llama3-rope": (
        LlamaForCausalLM,
        LlamaConfig,
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": 21}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 24}),
    "wide-heads": (LlamaForCausalLM, LlamaConfig, {"head_dim": 64}),
}


@functools.cache
def compiled() -> Library:
    return load(Path(tempfile.gettempdir()) / "pilotfish-tests-executor")


def make_model(kind: str, dtype: torch.dtype, seed: int = 0) -> Any:
    """A random model with large weights and biases, so that every part shows in the logits."""
    model_class, config_class, extra = KINDS[kind]
    settings = {
        "vocab_size": VOCAB,
        "hidden_size": 40,
        "intermediate_size": 72,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "initializer_range": 0.3,
        **BARE,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = model_class(config_class(**{**settings, **extra}))
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                torch.nn.init.normal_(parameter.data, 1.0 if "norm" in name else 0.0, 0.2)
    model = model.to(dtype).eval()
    model.set_attn_implementation(ATTENTION)
    return model


def make_native(
    model: Any, taps: tuple[int, ...] = (), threads: int = 2, max_model_len: int = 256
) -> tuple[Target, NativeTarget]:
    """The eager target and the native one in its place."""
    eager = Target(model, taps)
    return eager, NativeTarget(eager, compiled(), max_model_len, threads)
