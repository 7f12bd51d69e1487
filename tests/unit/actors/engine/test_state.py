"""Layers whose state cannot be rolled back are refused by name; windows are kept."""

from __future__ import annotations

import pytest
from transformers import LlamaConfig, MistralConfig, Qwen2Config

from actors.engine.errors import ModelLoadError
from actors.engine.state import PagedKV, state_specification

TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def test_every_attention_layer_is_paged() -> None:
    assert state_specification(LlamaConfig(**TINY)) == (PagedKV(2, 16), PagedKV(2, 16))


def test_a_window_limits_what_a_row_sees() -> None:
    assert state_specification(MistralConfig(**TINY, sliding_window=8))[0].window == 8
    config = Qwen2Config(**TINY, use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert [layer.window for layer in state_specification(config)] == [None, 8]


def test_recurrent_layers_are_refused_by_name() -> None:
    config = LlamaConfig(**TINY)
    config.layer_types = ["linear_attention", "full_attention"]
    with pytest.raises(ModelLoadError, match="linear_attention"):
        state_specification(config)
