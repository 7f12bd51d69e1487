"""Public formats of EAGLE-3 and P-EAGLE, one reading of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from actors.drafters.checkpoints.files import open_checkpoint
from actors.drafters.checkpoints.head import LoadedHead, TargetShape
from actors.drafters.checkpoints.table import read_head
from actors.drafters.errors import DrafterLoadError
from tests.checkpoints import eagle
from tests.checkpoints.block import DRAFT_IDS, HIDDEN, TARGET_LAYERS, VOCAB, write

TARGET = TargetShape(HIDDEN, TARGET_LAYERS, VOCAB)


def load(folder: Path, target: TargetShape | None = TARGET) -> LoadedHead:
    return read_head(open_checkpoint(folder), target)


def change(folder: Path, tensors: dict[str, torch.Tensor | None], **config: Any) -> None:
    """Put tensors in, or out with None, and keys of config.json likewise."""
    held = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        held.pop(name, None)
        if tensor is not None:
            held[name] = tensor
    said = {**json.loads((folder / "config.json").read_text()), **config}
    write(folder, {k: v for k, v in said.items() if v is not None}, held)


def refusal(folder: Path) -> str:
    with pytest.raises(DrafterLoadError) as caught:
        load(folder)
    assert caught.value.param == "model"
    return str(caught.value)


@pytest.mark.parametrize("name", eagle.FORMATS)
def test_every_public_format_says_the_same_as_what_was_written(name: str, tmp_path: Path) -> None:
    written = eagle.FORMATS[name](tmp_path)
    head = load(tmp_path)
    assert head.mechanism == "eagle3"
    assert head.spec == written.spec
    assert head.taps == written.spec.taps
    assert head.tensors.keys() == written.tensors.keys()
    assert all(torch.equal(head.tensors[n], t) for n, t in written.tensors.items())
    assert (head.draft_ids is None) == (written.draft_ids is None)
    if head.draft_ids is not None:
        assert torch.equal(head.draft_ids, DRAFT_IDS)  # offsets became ids


def test_without_a_target_the_default_taps_are_not_made_up(tmp_path: Path) -> None:
    eagle.safeai(tmp_path)
    head = load(tmp_path, None)
    assert head.taps == ()
    assert "L/2" in head.taps_from


def test_the_target_that_speculators_names_is_kept(tmp_path: Path) -> None:
    eagle.speculators(tmp_path)
    assert load(tmp_path).target_name == "org/target"


def test_norm_output_means_another_thing_in_specforge_and_is_noted(tmp_path: Path) -> None:
    eagle.specforge(tmp_path)
    head = load(tmp_path)
    assert not head.spec.norm_output
    assert "norm_output" in head.notes[0]


def test_a_reduced_head_without_its_map_is_refused(tmp_path: Path) -> None:
    """It would accept next to nothing, and say no word."""
    eagle.safeai(tmp_path)
    change(tmp_path, {"d2t": None, "t2d": None})
    assert "63 of 128 ids and there is no d2t" in refusal(tmp_path)


def test_a_map_that_its_members_contradict_is_refused(tmp_path: Path) -> None:
    eagle.safeai(tmp_path)
    change(tmp_path, {"t2d": torch.ones(VOCAB, dtype=torch.bool)})
    assert "d2t and t2d" in refusal(tmp_path)


@pytest.mark.parametrize(
    "d2t", [torch.full((len(DRAFT_IDS),), VOCAB), torch.arange(len(DRAFT_IDS)).neg()]
)
def test_a_map_out_of_range_or_with_an_id_twice_is_refused(
    d2t: torch.Tensor, tmp_path: Path
) -> None:
    eagle.safeai(tmp_path)
    change(tmp_path, {"d2t": d2t})
    assert "distinct ids" in refusal(tmp_path)


def test_a_narrow_draft_without_an_embedding_is_refused(tmp_path: Path) -> None:
    eagle.safeai_narrow(tmp_path)
    change(tmp_path, {"embed_tokens.weight": None})
    assert "no embed_tokens.weight" in refusal(tmp_path)


def test_a_head_absent_is_the_targets_only_in_the_full_vocabulary(tmp_path: Path) -> None:
    eagle.modelopt(tmp_path)
    change(tmp_path, {"lm_head.weight": None})
    assert load(tmp_path).spec.draft_vocab == VOCAB
    eagle.safeai(tmp_path)
    change(tmp_path, {"lm_head.weight": None})
    assert "no lm_head.weight" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("tensors", "config", "reason"),
    [
        ({"midlayer.mystery.weight": torch.ones(3)}, {}, "unknown tensors: midlayer.mystery"),
        ({"norm.weight": None}, {}, "missing tensors: norm.weight"),
        ({"norm.weight": torch.full((HIDDEN,), float("nan"))}, {}, "NaN"),
        (
            {"input_norm.weight": torch.ones(3 * HIDDEN), "fc_norm.0.weight": torch.ones(HIDDEN)},
            {},
            "both",
        ),
        ({}, {"fc_norm": True}, "fc_norm is True and fc_norm.0.weight is not there"),
        ({}, {"eagle_aux_hidden_state_layer_ids": [1, 2]}, "2 taps"),
        ({}, {"target_hidden_size": 32}, "fc reads"),
        ({}, {"parallel_drafting": True}, "no mask_hidden"),
        ({"mask_hidden": torch.ones(1, 1, 3 * HIDDEN)}, {}, "needs its token"),
        ({"midlayer.self_attn.kv_a_proj_with_mqa.weight": torch.ones(3, 3)}, {}, "MLA"),
        ({"midlayer.mlp.experts.0.up_proj.weight": torch.ones(3, 3)}, {}, "experts"),
        ({}, {"eagle_config": {"use_mtp_layernorm": True}}, "use_mtp_layernorm"),
        ({}, {"eagle_config": {"parallel_draft_step": 4}}, "parallel_draft_step"),
        ({}, {"architectures": ["Gemma4Eagle3Model"]}, "Gemma4Eagle3Model"),
        ({}, {"hidden_act": "gelu"}, "gelu"),
    ],
)
def test_what_is_not_known_or_contradicts_itself_is_refused_by_name(
    tensors: dict[str, torch.Tensor | None], config: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    eagle.safeai(tmp_path)
    change(tmp_path, tensors, **config)
    assert reason in refusal(tmp_path)


def test_a_drafters_own_rope_is_read_in_old_and_new_spelling(tmp_path: Path) -> None:
    """S37."""
    scaled = {"rope_type": "linear", "factor": 4.0}
    eagle.safeai(tmp_path)
    change(tmp_path, {}, rope_scaling=scaled)
    assert load(tmp_path).spec.layer.rope == {**scaled, "rope_theta": 10000.0}
    change(tmp_path, {}, rope_scaling=None, rope_parameters={**scaled, "rope_theta": 5.0})
    assert load(tmp_path).spec.layer.rope == {**scaled, "rope_theta": 5.0}


def test_taps_out_of_the_targets_range_are_refused_with_the_drafter(tmp_path: Path) -> None:
    from actors.drafters.checkpoints.fit import misfits

    eagle.safeai(tmp_path)
    change(tmp_path, {}, eagle_aux_hidden_state_layer_ids=[1, 2, 9])
    assert "hidden state 9" in misfits(load(tmp_path), TARGET)[0]
