"""Public formats of DFlash and DSpark, one reading of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from actors.drafters.checkpoints.files import open_checkpoint
from actors.drafters.checkpoints.head import LoadedHead, TargetShape
from actors.drafters.checkpoints.table import read_head
from actors.drafters.errors import DrafterLoadError
from tests.checkpoints.block import (
    DRAFT_IDS,
    FORMATS,
    HIDDEN,
    TARGET_LAYERS,
    VOCAB,
    deepspec,
    speculators,
    write,
    zlab,
)

TARGET = TargetShape(HIDDEN, TARGET_LAYERS, VOCAB)


def load(folder: Path) -> LoadedHead:
    return read_head(open_checkpoint(folder), TARGET)


def reconfigure(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize("name", FORMATS)
def test_every_public_format_says_the_same_as_what_was_written(name: str, tmp_path: Path) -> None:
    written = FORMATS[name](tmp_path)
    head = load(tmp_path)
    assert head.mechanism == written.mechanism
    assert head.spec.block.masks == written.spec.block.masks or not written.spec.block.per_layer
    for part in ("markov", "confidence", "selector", "domino"):
        assert getattr(head.spec, part) == getattr(written.spec, part), part
    for part in ("embed_scale", "logit_scale", "softcap"):
        assert getattr(head.spec, part) == getattr(written.spec, part), part
    for part in (
        "layer",
        "layers",
        "taps",
        "target_hidden",
        "block",
        "mask_token",
        "next_token",
        "conv",
    ):
        assert getattr(head.spec.block, part) == getattr(written.spec.block, part), part
    assert {n: t.shape for n, t in head.tensors.items() if not n.startswith(("embed", "lm_"))} == {
        n: t.shape for n, t in written.tensors.items()
    }
    assert all(torch.equal(head.tensors[n], t) for n, t in written.tensors.items())
    assert head.taps == written.spec.block.taps
    assert (head.draft_ids is not None) == written.reduced
    if head.draft_ids is not None:
        assert torch.equal(head.draft_ids, DRAFT_IDS)  # offsets became ids


def test_the_convention_of_layer_indices_is_the_producers_and_is_kept_for_people(
    tmp_path: Path,
) -> None:
    """S32: an output of layer 0 is hidden state 1; speculators' numbers are hidden states."""
    for writer in (zlab, speculators):
        writer(tmp_path / writer.__name__)
        head = load(tmp_path / writer.__name__)
        assert head.taps == (1, 3, 5)
        assert "layer i" in head.taps_from


def test_speculators_missing_sample_from_anchor_is_taken_as_the_librarys_own_and_noted(
    tmp_path: Path,
) -> None:
    for kind, anchor in (("dflash", False), ("dspark", True)):
        folder = tmp_path / kind
        speculators(folder, kind)
        reconfigure(folder, sample_from_anchor=None)
        head = load(folder)
        assert head.spec.block.next_token is anchor
        assert bool(head.notes) is anchor


def test_a_drafters_own_rope_is_read_in_old_and_new_spelling(tmp_path: Path) -> None:
    """S37."""
    scaled = {"rope_type": "linear", "factor": 4.0}
    zlab(tmp_path)
    reconfigure(tmp_path, rope_scaling=scaled)
    assert load(tmp_path).spec.block.layer.rope == {**scaled, "rope_theta": 10000.0}
    reconfigure(tmp_path, rope_scaling=None, rope_parameters={**scaled, "rope_theta": 5.0})
    assert load(tmp_path).spec.block.layer.rope == {**scaled, "rope_theta": 5.0}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dflash_config": {"target_layer_ids": "1"}}, "target_layer_ids"),
        ({"dflash_config": {"target_layer_ids": []}}, "target_layer_ids"),
        ({"dflash_config": {"target_layer_ids": [0, 1, 2, 3, 4]}}, "5 taps"),
        ({"dflash_config": {"target_layer_ids": [0, 2, 4], "mask_token_id": 7}}, "block_size"),
        ({"dflash_config": {"target_layer_ids": [0, 2, 4], "block_size": 5}}, "mask_token_id"),
        ({"dflash_config": []}, "dflash_config"),
        ({"num_attention_heads": 8}, "num_attention_heads"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["mamba", "mamba"]}, "mamba"),
    ],
)
def test_a_config_that_contradicts_the_tensors_is_refused_by_name(
    changes: dict[str, object], reason: str, tmp_path: Path
) -> None:
    zlab(tmp_path)
    reconfigure(tmp_path, **changes)
    with pytest.raises(DrafterLoadError, match=reason) as caught:
        load(tmp_path)
    assert caught.value.param == "model"


@pytest.mark.parametrize(
    ("nested", "reason"),
    [
        ({"attention_sink_bias": True}, "attention_sink_bias"),
        ({"attention_mode": "mla"}, "mla"),
        ({"projector_type": "xpress"}, "xpress"),
        ({"block_size": 1}, "block_size"),
        ({"block_size": 100000}, "block_size"),
    ],
)
def test_a_variant_that_is_not_known_is_refused_by_name(
    nested: dict[str, object], reason: str, tmp_path: Path
) -> None:
    zlab(tmp_path, **nested)
    with pytest.raises(DrafterLoadError, match=reason):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "tensor", "reason"),
    [
        ("layers.0.mystery.weight", torch.ones(3), "unknown tensors: layers.0.mystery.weight"),
        ("lilicorr.x", torch.ones(3), "LiLiCorr"),
        ("hidden_correction.gate_proj.weight", torch.ones(3), "DFly"),
        ("prefix_gru.weight_ih_l0", torch.ones(3), "unknown tensors: prefix_gru.weight_ih_l0"),
        ("norm.weight", torch.full((HIDDEN,), float("nan")), "NaN"),
        ("norm.weight", torch.full((HIDDEN,), float("inf")), "NaN or infinite"),
        ("norm.weight", torch.ones(3), "shape"),
        ("norm.weight", None, "missing tensors: norm.weight"),
        ("layers.1.mlp.up_proj.weight", None, "missing"),
        ("fc.weight", None, "fc.weight"),
    ],
)
def test_tensors_that_are_strange_missing_or_broken_are_refused_by_name(
    name: str, tensor: torch.Tensor | None, reason: str, tmp_path: Path
) -> None:
    tensors = dict(zlab(tmp_path).tensors)
    if tensor is None:
        del tensors[name]
    else:
        tensors[name] = tensor
    write(tmp_path, json.loads((tmp_path / "config.json").read_text()), tensors)
    with pytest.raises(DrafterLoadError, match=reason):
        load(tmp_path)


def test_a_markov_head_must_be_of_the_kind_and_rank_that_is_said(tmp_path: Path) -> None:
    deepspec(tmp_path, "gated")
    reconfigure(tmp_path, markov_head_type="rnn")
    with pytest.raises(DrafterLoadError, match="rnn"):
        load(tmp_path)
    reconfigure(tmp_path, markov_head_type="gated", markov_rank=16)
    with pytest.raises(DrafterLoadError, match="markov_rank"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("d2t", "reason"),
    [
        (torch.zeros(len(DRAFT_IDS) - 1, dtype=torch.int64), "integers"),
        (torch.zeros(len(DRAFT_IDS)), "integers"),
        (torch.full((len(DRAFT_IDS),), VOCAB), "distinct ids"),
        (torch.arange(len(DRAFT_IDS)).neg(), "distinct ids"),
        (torch.zeros(len(DRAFT_IDS), dtype=torch.int64), "same tokens"),
    ],
)
def test_a_map_of_a_reduced_vocabulary_that_is_no_map_is_refused(
    d2t: torch.Tensor, reason: str, tmp_path: Path
) -> None:
    speculators(tmp_path, reduced=True)
    checkpoint = open_checkpoint(tmp_path)
    tensors = {name: checkpoint.tensor(name) for name in checkpoint.files}
    write(tmp_path, dict(checkpoint.config), {**tensors, "d2t": d2t})
    with pytest.raises(DrafterLoadError, match=reason):
        load(tmp_path)
