"""What a folder may hold, and what is said when it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from actors.drafters.checkpoints import files
from actors.drafters.checkpoints.files import open_checkpoint
from actors.drafters.checkpoints.table import read_head
from actors.drafters.errors import DrafterLoadError

WEIGHTS = {"a": torch.ones(2, 3), "b": torch.zeros(4)}


def make(folder: Path, config: str | None = "{}", **shards: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(config)
    for name, tensors in shards.items():
        save_file(tensors, folder / f"{name}.safetensors")
    return folder


def test_shapes_are_known_without_reading_weights_and_tensors_are_as_stored(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(make(tmp_path, model=WEIGHTS))
    assert checkpoint.shapes == {"a": (2, 3), "b": (4,)}
    assert torch.equal(checkpoint.tensor("a"), WEIGHTS["a"])


def test_shards_are_those_of_the_index_and_of_nothing_else(tmp_path: Path) -> None:
    folder = make(tmp_path, one={"a": WEIGHTS["a"]}, two={"b": WEIGHTS["b"]}, three=WEIGHTS)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
    assert open_checkpoint(folder).files == {"a": "one.safetensors", "b": "two.safetensors"}
    index.write_text(json.dumps({"weight_map": {"a": "four.safetensors"}}))
    with pytest.raises(DrafterLoadError, match="four"):
        open_checkpoint(folder)
    index.write_text(json.dumps({"weight_map": {"a": "../one.safetensors"}}))
    with pytest.raises(DrafterLoadError, match="one"):
        open_checkpoint(folder)
    index.unlink()
    with pytest.raises(DrafterLoadError, match="is both in"):
        open_checkpoint(folder)


def test_pickled_weights_are_never_opened_and_the_way_out_is_said(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(DrafterLoadError, match="convert it once") as caught:
        open_checkpoint(folder)
    assert caught.value.param == "model"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (None, "has no config.json"),
        ("{", "cannot read"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "cannot read"),
        (" " * (files.CONFIG_BYTES + 1), "bytes, more than"),
    ],
)
def test_a_config_that_cannot_be_read_is_a_typed_refusal(
    config: str | None, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(DrafterLoadError, match=reason):
        open_checkpoint(make(tmp_path, config, model=WEIGHTS))


def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    folder = make(tmp_path, model=WEIGHTS)
    whole = (folder / "model.safetensors").read_bytes()
    for length in (0, 4, 40, len(whole) - 1):
        (folder / "model.safetensors").write_bytes(whole[:length])
        with pytest.raises(DrafterLoadError, match=r"model\.safetensors"):
            open_checkpoint(folder)


def test_no_folder_an_empty_one_and_one_that_is_no_drafter_are_named(tmp_path: Path) -> None:
    with pytest.raises(DrafterLoadError, match="no such folder"):
        open_checkpoint(tmp_path / "nowhere")
    with pytest.raises(DrafterLoadError, match=r"no \*\.safetensors"):
        open_checkpoint(make(tmp_path / "empty"))
    llama = make(tmp_path / "x", '{"architectures": ["GPT2LMHeadModel"]}', model=WEIGHTS)
    with pytest.raises(DrafterLoadError, match="GPT2LMHeadModel is no drafter"):
        read_head(open_checkpoint(llama))


def test_more_tensors_than_any_model_has_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "TENSORS", 1)
    with pytest.raises(DrafterLoadError, match="more than 1 tensors"):
        open_checkpoint(make(tmp_path, model=WEIGHTS))
