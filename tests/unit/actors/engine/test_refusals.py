"""Weights that cannot be served rightly are refused by name before they are loaded (law L1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
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
