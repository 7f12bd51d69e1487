"""Weights that cannot be served rightly are refused by name (law L1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import JambaConfig, MixtralConfig, NllbMoeConfig, SwitchTransformersConfig

from actors.engine.errors import ModelLoadError
from actors.engine.loading import load_model
from actors.engine.refusals import refuse_dropping_experts
from tests.models import make_rand, save_tiny


@pytest.mark.parametrize("method", ["bitsandbytes", "torchao", "fp8", "gptq"])
def test_a_quantised_checkpoint_is_refused_with_its_method(tmp_path: Path, method: str) -> None:
    folder = save_tiny(make_rand(), tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"quantization_config": {"quant_method": method}}))
    with pytest.raises(ModelLoadError, match=f"quantised with {method}") as refused:
        load_model(folder, None, torch.float32, "cpu")
    assert refused.value.param == "model"


Weights = dict[str, torch.Tensor]
UP = "model.layers.1.mlp.up_proj.weight"


def without_some(weights: Weights) -> None:
    del weights[UP], weights["model.norm.weight"]


def without_one(weights: Weights) -> None:
    del weights[UP]


def of_another_shape(weights: Weights) -> None:
    weights[UP] = weights[UP][:-1].clone()


def in_eight_bits(weights: Weights) -> None:
    """As ModelOpt writes it, with the method in a file of its own beside the config."""
    weights[UP] = weights[UP].to(torch.float8_e4m3fn)
    weights[f"{UP}_scale"] = torch.tensor(0.5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without_one, f"{UP} is missing from the weights"),
        (without_some, f"{UP} and 1 more are missing from the weights"),
        (of_another_shape, rf"{UP} \(127x64, the model's is 128x64\) is of another shape"),
        (in_eight_bits, f"{UP}_scale is of a quantised checkpoint"),
    ],
)
def test_weights_that_do_not_make_the_model_whole_are_refused_and_never_drawn_at_random(
    tmp_path: Path, change: Callable[[Weights], None], reason: str
) -> None:
    folder = save_tiny(make_rand(dtype=torch.float32), tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=reason) as refused:
        load_model(folder, None, torch.float32, "cpu")
    assert refused.value.param == "model"


def test_a_tied_output_and_a_weight_more_than_the_model_has_are_no_reason_to_refuse(
    tmp_path: Path,
) -> None:
    model = make_rand(dtype=torch.float32, tie_word_embeddings=True)
    folder = save_tiny(model, tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    assert "lm_head.weight" not in weights
    weights["mtp.layers.0.embed.weight"] = torch.zeros(2, 2)
    save_file(weights, file, metadata={"format": "pt"})
    loaded = load_model(folder, None, torch.float32, "cpu")
    assert torch.equal(loaded.get_output_embeddings().weight, model.model.embed_tokens.weight)


def test_states_that_cannot_be_rolled_back_are_refused_before_weights_are_read(
    tmp_path: Path,
) -> None:
    JambaConfig().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not read")
    with pytest.raises(ModelLoadError, match="jamba: layers of kind linear_attention"):
        load_model(str(tmp_path), None, torch.float32, "cpu")


@pytest.mark.parametrize("config", [SwitchTransformersConfig(), NllbMoeConfig()])
def test_experts_that_drop_tokens_are_refused_by_name(config: object) -> None:
    with pytest.raises(ModelLoadError, match="expert_capacity drop tokens"):
        refuse_dropping_experts(config)


def test_what_is_refused_is_the_capacity_and_not_the_experts() -> None:
    config = MixtralConfig()
    refuse_dropping_experts(config)  # every token is taken
    config.expert_capacity = 8
    with pytest.raises(ModelLoadError, match="expert_capacity drop tokens"):
        refuse_dropping_experts(config)
