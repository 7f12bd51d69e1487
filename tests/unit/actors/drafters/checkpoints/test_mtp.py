"""MTP heads in public formats: inside a target, or in a folder of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from actors.drafters.checkpoints.files import open_checkpoint
from actors.drafters.checkpoints.head import LoadedHead
from actors.drafters.checkpoints.table import read_head
from actors.drafters.errors import DrafterLoadError
from tests.checkpoints import mtp
from tests.checkpoints.block import HIDDEN, TARGET_LAYERS


def load(folder: Path) -> LoadedHead:
    return read_head(open_checkpoint(folder))


def change(folder: Path, tensors: dict[str, torch.Tensor | None], **config: Any) -> None:
    held = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        held.pop(name, None)
        if tensor is not None:
            held[name] = tensor
    save_file(held, folder / "model.safetensors")
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**said, **config}))


@pytest.mark.parametrize("name", mtp.FORMATS)
def test_every_layout_says_the_same_as_what_was_written(name: str, tmp_path: Path) -> None:
    written = mtp.FORMATS[name](tmp_path)
    head = load(tmp_path)
    assert head.mechanism == "mtp"
    assert head.spec == written.spec
    assert head.taps == (TARGET_LAYERS,)
    assert head.tensors.keys() == written.tensors.keys()
    assert all(torch.equal(head.tensors[n], t) for n, t in written.tensors.items())
    assert head.draft_ids is None


@pytest.mark.parametrize(
    ("tensors", "config", "reason"),
    [
        ({"mtp.mystery.weight": torch.ones(3)}, {}, "unknown tensors: mtp.mystery.weight"),
        ({"mtp.layers.0.mystery": torch.ones(3)}, {}, "mystery"),
        ({"mtp.norm.weight": None}, {}, "missing tensors: stages.0.norm.weight"),
        ({"mtp.norm.weight": torch.full((HIDDEN,), float("inf"))}, {}, "infinite"),
        ({"mtp.fc.weight": torch.ones(HIDDEN, HIDDEN)}, {}, "shape"),
        ({}, {"mtp_num_hidden_layers": 2}, "says 2 MTP layers and there are 1"),
        ({}, {"sliding_window": 8}, "sliding_window 8"),
        ({}, {"hidden_act": "gelu"}, "gelu"),
        ({"mtp.layers.0.mlp.gate.weight": torch.ones(4, HIDDEN)}, {}, "unknown tensors"),
    ],
)
def test_what_is_not_known_or_contradicts_itself_is_refused_by_name(
    tensors: dict[str, torch.Tensor | None], config: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    mtp.qwen(tmp_path)
    change(tmp_path, tensors, **config)
    with pytest.raises(DrafterLoadError, match=reason) as caught:
        load(tmp_path)
    assert caught.value.param == "model"


def test_a_target_without_a_head_is_no_drafter(tmp_path: Path) -> None:
    mtp.inside(tmp_path, {})
    with pytest.raises(DrafterLoadError, match="no drafter"):
        load(tmp_path)


def test_copies_of_embedding_and_head_are_left_in_the_file(tmp_path: Path) -> None:
    mtp.deepseek(tmp_path)
    assert not [n for n in load(tmp_path).tensors if "embed" in n or "head" in n]
