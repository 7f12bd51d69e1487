"""`pilotfish plan`: from names and files to tables, figures and a picture, or one line of error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.cli.main import app
from cluster.plan.answer import Asked, PlanError, question, shape
from cluster.plan.catalogue import MODELS
from cluster.plan.config_file import ConfigError, shape_of

RUN = CliRunner()

LLAMA = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def test_a_config_file_gives_the_shape_of_the_table(tmp_path: Path) -> None:
    folder = tmp_path / "Llama-3.1-8B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    assert shape(str(folder)) == shape(str(folder / "config.json")) == MODELS["Llama-3.1-8B"]
    assert shape("meta-llama/llama-3.1-8b") == MODELS["Llama-3.1-8B"]


def test_mixtures_and_latent_attention_are_read_by_transformers_names() -> None:
    deepseek = {
        **LLAMA,
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "head_dim": 128,
        "intermediate_size": 18432,
        "vocab_size": 129280,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
    }
    read = shape_of(deepseek, "DeepSeek-V3")
    known = MODELS["DeepSeek-V3"]
    assert (read.experts, read.latent, read.weights) == (
        known.experts,
        known.latent,
        known.weights,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "hidden_size is None"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers is '32'"),
        ({"layer_types": ["linear_attention"]}, "linear_attention are not planned for"),
        ({"num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": [0]}, "some layers only"),
    ],
)
def test_a_config_that_says_too_little_is_refused_with_the_field(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        shape_of({**LLAMA, **change}, "it")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Asked("Llama-9", "H100"), "unknown model 'Llama-9'; known: SmolLM2-135M"),
        (Asked("Llama-3.1-8B", "G7"), "unknown GPU 'G7'; known: A10"),
        (Asked("./nothing.json", "H100"), "no such file"),
        (Asked("Llama-3.1-8B", "H100", concurrency="1,x"), "--concurrency: '1,x'"),
        (Asked("Llama-3.1-8B", "H100", concurrency="0"), "--concurrency: '0'"),
        (Asked("Llama-3.1-8B", "H100", mechanisms="medusa"), "unknown mechanism"),
        (Asked("Llama-3.1-8B", "A100", dtype="fp8"), "A100 has no fp8 units"),
        (Asked("Llama-3.1-8B", "H100", dtype="int3"), "dtypes are bf16"),
    ],
)
def test_what_cannot_be_planned_is_one_line_that_names_what_can(asked: Asked, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        question(asked)


def test_the_table_shows_the_tile_the_candidates_and_every_mechanism() -> None:
    done = RUN.invoke(app, ["plan", "Llama-3.3-70B", "--gpu", "h100", "--tp", "4"])
    assert done.exit_code == 0, done.output
    assert "G = 8" in done.output
    assert "filled at D = 15" in done.output
    for name in ("eagle3", "mtp", "dflash", "dspark", "suffix", "verifiers : drafters"):
        assert name in done.output


def test_json_has_the_same_figures_and_no_infinities() -> None:
    done = RUN.invoke(app, ["plan", "Qwen3-8B", "--gpu", "H100", "--json", "--acceptance", "0"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.output)
    assert figures["facts"]["first_guess"] == 31
    assert figures["pools"][0]["verifiers_per_drafter"] is None


def test_a_model_too_large_for_its_devices_is_refused_with_their_number() -> None:
    done = RUN.invoke(app, ["plan", "Llama-3.3-70B", "--gpu", "H100"])
    assert done.exit_code == 2
    assert "it takes 2 or more" in done.output
    assert "Traceback" not in done.output


def test_a_picture_is_drawn_where_it_is_wanted_and_refused_before_anything_else(
    tmp_path: Path,
) -> None:
    arguments = ["plan", "Qwen3-8B", "--gpu", "H100", "--plot"]
    assert RUN.invoke(app, [*arguments, str(tmp_path / "plan.png")]).exit_code == 0
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    for wrong in (tmp_path / "plan.txt", tmp_path / "none" / "plan.png"):
        done = RUN.invoke(app, [*arguments, str(wrong)])
        assert done.exit_code == 2
        assert "--plot" in done.output
