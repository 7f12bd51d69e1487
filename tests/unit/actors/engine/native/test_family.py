"""Which models run natively; every other is refused with its reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GemmaConfig, GemmaForCausalLM, LlamaConfig

from actors.engine.native.family import config_obstacle, obstacle, rotary_tables
from tests.native import KINDS, make_model


@pytest.mark.parametrize("kind", KINDS)
def test_the_family_has_no_obstacle(kind: str) -> None:
    model = make_model(kind, torch.bfloat16)
    assert obstacle(model) == ""
    assert config_obstacle(model.config) == ""


def test_another_architecture_is_named() -> None:
    config = GemmaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
    )
    assert "GemmaForCausalLM" in obstacle(GemmaForCausalLM(config))
    config.architectures = ["GemmaForCausalLM"]
    assert "GemmaForCausalLM" in config_obstacle(config)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"hidden_act": "gelu"}, "gelu"),
        ({"hidden_size": 36, "num_attention_heads": 4, "head_dim": 8}, "multiple of 8"),
        ({"hidden_size": 40, "num_attention_heads": 4}, "multiple of 8"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(settings: dict[str, Any], word: str) -> None:
    assert word in config_obstacle(LlamaConfig(**settings))


def test_double_precision_and_foreign_layers_are_refused() -> None:
    assert "float64" in obstacle(make_model("llama", torch.float64))
    model = make_model("llama", torch.float32)
    model.model.layers[2].mlp.down_proj = torch.nn.Identity()
    assert "seven plain linear maps" in obstacle(model)
    model = make_model("llama", torch.float32)
    model.model.layers[0].mlp.up_proj = torch.nn.Linear(40, 72)
    assert "biases" in obstacle(model)


@pytest.mark.parametrize("kind", ["llama", "llama3-rope", "qwen3"])
def test_rotary_tables_are_the_models_own(kind: str) -> None:
    model = make_model(kind, torch.bfloat16)
    cosines, sines = rotary_tables(model, 80)
    rows = torch.arange(80)[None]
    want = model.model.rotary_emb(torch.empty(1, dtype=torch.bfloat16), rows)
    assert cosines.dtype is torch.float32
    assert torch.equal(cosines, want[0][0].float())
    assert torch.equal(sines, want[1][0].float())
