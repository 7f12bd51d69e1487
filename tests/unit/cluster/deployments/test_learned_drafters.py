"""From a speculative configuration to taps and drafters, on the nodes where each lies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from actors.drafters.errors import DrafterLoadError
from actors.engine.ports import make_port
from cluster.config import AppArgs, SpeculativeConfig
from cluster.deployments.drafting import start_drafting
from cluster.deployments.engine_options import engine_options
from cluster.deployments.located import located
from tests.checkpoints.block import TAPS, deepspec, zlab
from tests.checkpoints.target import target_folder


def arguments(folder: Path, method: str = "dspark", placement: str = "remote") -> AppArgs:
    return AppArgs(
        model=str(target_folder()),
        dtype="float64",
        speculative_config=SpeculativeConfig(
            method=method,  # type: ignore[arg-type]
            model=str(folder),
            placement=placement,  # type: ignore[arg-type]
        ),
    )


@pytest.fixture
def drafter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    deepspec(tmp_path / "drafter")
    return tmp_path / "drafter"


def test_a_verifier_taps_what_its_remote_drafters_checkpoint_says(drafter: Path) -> None:
    options = located(engine_options(arguments(drafter), "v"))
    assert options.taps == TAPS
    serving = start_drafting(arguments(drafter), "d", "127.0.0.1")
    try:
        assert serving.mechanism == "dspark"
    finally:
        serving.stop(0.0)


def test_a_verifier_taps_what_its_own_drafters_checkpoint_says(drafter: Path) -> None:
    options = located(engine_options(arguments(drafter, placement="colocated"), "v"))
    port = make_port(options, {}, vocab_size=128, tokenizer="", max_model_len=64)
    assert port.taps == TAPS


@pytest.mark.parametrize("placement", ["remote", "colocated"])
def test_a_drafter_for_another_target_is_refused_where_either_loads(
    placement: str, drafter: Path
) -> None:
    config = json.loads((drafter / "config.json").read_text())
    (drafter / "config.json").write_text(json.dumps({**config, "num_target_layers": 7}))
    args = arguments(drafter, placement=placement)
    with pytest.raises(DrafterLoadError, match="7 layers, this one has 6") as caught:
        make_port(
            located(engine_options(args, "v")), {}, vocab_size=128, tokenizer="", max_model_len=64
        )
    assert caught.value.param == "model"
    with pytest.raises(DrafterLoadError, match="7 layers, this one has 6"):
        start_drafting(args, "d", "127.0.0.1")


def test_a_method_that_is_not_the_checkpoints_is_refused_with_the_right_one(tmp_path: Path) -> None:
    zlab(tmp_path)
    with pytest.raises(DrafterLoadError, match='write "method": "dflash"'):
        located(engine_options(arguments(tmp_path), "v"))


def test_a_model_without_its_method_is_never_ignored() -> None:
    with pytest.raises(ValidationError, match="pilotfish drafter inspect some/drafter"):
        SpeculativeConfig(model="some/drafter")
    with pytest.raises(ValidationError, match="has no 'model'"):
        SpeculativeConfig(method="ngram", model="some/drafter")


def test_configurations_written_for_vllm_carry_over() -> None:
    written = {
        "method": "qwen3_next_mtp",
        "num_speculative_tokens": 3,
        "draft_tensor_parallel_size": 1,
    }
    assert SpeculativeConfig.model_validate(written).method == "mtp"
    for method in ("eagle3", "dflash", "dspark", "mtp"):
        SpeculativeConfig.model_validate({"method": method, "model": "a/b"})
    with pytest.raises(ValidationError, match="draft_tensor_parallel_size"):
        SpeculativeConfig.model_validate({**written, "draft_tensor_parallel_size": 2})
