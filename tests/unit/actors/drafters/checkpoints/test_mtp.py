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
from tests.checkpoints.block import DRAFT_IDS, HIDDEN, TARGET_LAYERS, VOCAB


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
    assert (head.draft_ids is None) == (written.draft_ids is None)
    if head.draft_ids is not None and written.draft_ids is not None:
        assert torch.equal(head.draft_ids, written.draft_ids)


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


def test_a_draft_vocabulary_may_bring_a_head_of_its_own(tmp_path: Path) -> None:
    mtp.speculators(tmp_path, reduced=True)
    own = torch.randn(len(DRAFT_IDS), HIDDEN, dtype=torch.float64)
    change(tmp_path, {"lm_head.weight": own})
    assert torch.equal(load(tmp_path).tensors["lm_head.weight"], own)


@pytest.mark.parametrize(
    ("tensors", "config", "reason"),
    [
        ({"d2t": None}, {}, "a t2d and no d2t"),
        ({"d2t": torch.zeros(2, 3, dtype=torch.int64)}, {}, "not one row of integers"),
        ({}, {"draft_vocab_size": 7}, "draft_vocab_size is 7"),
        ({"lm_head.weight": torch.ones(3, HIDDEN)}, {}, "shape"),
    ],
)
def test_a_draft_vocabulary_that_contradicts_itself_is_refused(
    tensors: dict[str, torch.Tensor | None], config: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    mtp.speculators(tmp_path, reduced=True)
    change(tmp_path, tensors, **config)
    with pytest.raises(DrafterLoadError, match=reason):
        load(tmp_path)


def test_a_full_copy_of_the_head_without_a_draft_vocabulary_is_left_in_the_file(
    tmp_path: Path,
) -> None:
    mtp.speculators(tmp_path)
    change(tmp_path, {"lm_head.weight": torch.ones(VOCAB, HIDDEN)})
    assert "lm_head.weight" not in load(tmp_path).tensors
