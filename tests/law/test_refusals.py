"""What the engine cannot serve rightly is refused by name at load, never served wrongly (L1)."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DiffLlamaConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from actors.engine.errors import ModelLoadError
from actors.engine.loading import refuse_moving_rope
from tests.law.harness import make_engine, plain, request, run

TINY = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}


def build(config: PreTrainedConfig) -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).double().eval()


@pytest.mark.parametrize(("kind", "key"), [("dynamic", None), ("longrope", "original")])
def test_rotary_positions_that_move_with_the_batch_are_refused_where_they_move(kind, key) -> None:
    config = LlamaConfig(**TINY)
    config.rope_parameters = {"rope_type": kind, "factor": 4.0, "rope_theta": 1e4}
    if key:
        config.rope_parameters["original_max_position_embeddings"] = 32
    fixed_up_to = 32 if key else 64
    refuse_moving_rope(config, fixed_up_to)
    with pytest.raises(ModelLoadError, match=f"max_model_len {fixed_up_to}"):
        refuse_moving_rope(config, fixed_up_to + 1)
    refuse_moving_rope(LlamaConfig(**TINY), 10**6)


def test_attention_that_runs_twice_a_layer_is_refused() -> None:
    engine = make_engine(build(DiffLlamaConfig(**TINY)))
    with pytest.raises(ModelLoadError, match=r"layers \[0, 0, 1, 1\]"):
        engine.self_check()


def test_a_window_the_attention_is_not_told_of_is_refused() -> None:
    model = build(MistralConfig(**TINY, sliding_window=20))
    for layer in model.get_decoder().layers:
        layer.self_attn.config = LlamaConfig(**TINY)
        layer.self_attn.config._attn_implementation = "pilotfish_paged"
        layer.self_attn.config.sliding_window = None
    engine = make_engine(model)
    with pytest.raises(ModelLoadError, match="window of 20"):
        engine.self_check()


@pytest.mark.parametrize("window", [5, 20])
def test_a_windowed_target_writes_what_transformers_writes(window: int) -> None:
    model = build(MistralConfig(**TINY, sliding_window=window))
    prompt = [(7 * i) % 128 for i in range(12)]
    own = plain(model, prompt)
    engine = make_engine(model, max_model_len=64)
    engine.self_check()
    assert run(engine, request("a", prompt))["a"] == own
