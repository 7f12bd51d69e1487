"""Sizes that do not divide are refused before anything is loaded, with those that would."""

from __future__ import annotations

import pytest
from transformers import (
    GPTNeoConfig,
    LlamaConfig,
    MixtralConfig,
    OlmoeConfig,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
)

from actors.engine.errors import ModelLoadError
from actors.engine.state import paged_layers, state_specification
from actors.engine.tp.sizes import check_divides, local_specification


def llama(heads: int, kv_heads: int, vocab: int) -> LlamaConfig:
    return LlamaConfig(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocab,
        hidden_size=8 * heads,
        num_hidden_layers=2,
    )


@pytest.mark.parametrize(
    ("config", "world", "undivided", "fitting"),
    [
        pytest.param(llama(9, 3, 49152), 2, "9 attention heads, 3 KV heads", "1, 3", id="smollm2"),
        pytest.param(llama(8, 4, 1001), 2, "1001 vocabulary entries", "1", id="vocabulary"),
        pytest.param(llama(32, 8, 128256), 16, "8 KV heads", "1, 2, 4, 8", id="fewer-kv-heads"),
        pytest.param(llama(4, 1, 100), 2, "1 KV heads", "1", id="multi-query"),
        pytest.param(
            MixtralConfig(vocab_size=100, intermediate_size=94, num_key_value_heads=8),
            4,
            "94 columns of an expert",
            "1, 2",
            id="experts",
        ),
    ],
)
def test_what_does_not_divide_is_named_with_the_sizes_that_would(
    config: LlamaConfig, world: int, undivided: str, fitting: str
) -> None:
    with pytest.raises(ModelLoadError) as refused:
        check_divides(config, world)
    assert f"does not divide its {undivided}; sizes that do: {fitting}" in str(refused.value)
    assert refused.value.param == "tensor_parallel_size"


@pytest.mark.parametrize("world", [1, 2, 4, 8])
def test_what_divides_is_taken(world: int) -> None:
    check_divides(llama(32, 8, 128256), world)


def test_heads_that_stay_whole_need_not_divide() -> None:
    """OLMoE norms all heads together, so every rank has them all."""
    check_divides(OlmoeConfig(num_attention_heads=3, num_key_value_heads=3, vocab_size=100), 2)


def test_an_architecture_without_a_plan_is_refused_by_name() -> None:
    with pytest.raises(ModelLoadError, match="gpt_neo: transformers has no plan"):
        check_divides(GPTNeoConfig(num_layers=2, attention_types=[[["global"], 2]]), 2)


@pytest.mark.parametrize("config", [Qwen3NextConfig(), Qwen3_5TextConfig()])
def test_recurrent_layers_are_not_cut(config: Qwen3NextConfig) -> None:
    with pytest.raises(ModelLoadError, match=f"{config.model_type}: recurrent layers are not cut"):
        check_divides(config, 2)


def test_a_ranks_cache_has_its_own_heads_alone() -> None:
    whole = paged_layers(state_specification(llama(9, 3, 49152)))
    local = paged_layers(local_specification(whole, 1))
    assert [layer.kv_heads for layer in local] == [1, 1]
    assert sum(layer.row_elements for layer in local) * 3 == sum(
        layer.row_elements for layer in whole
    )
