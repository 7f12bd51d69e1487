"""`pilotfish train --mechanism external` from prompts to a draft model, on a tiny target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from actors.drafters.config import DrafterConfig
from actors.drafters.external import ExternalDrafter
from actors.drafters.table import build_drafter
from actors.training import checkpoint
from cluster.training import command
from tests.unit.cluster.training.test_train_command import given


@pytest.mark.parametrize(("layout", "cut"), [("", ""), ("transformers", "0,3,7")])
def test_a_run_ends_in_a_draft_model_that_loads_and_says_where_it_comes_from(
    layout: str, cut: str, target: Path, tmp_path: Path
) -> None:
    options = given(target, tmp_path, mechanism="external", layout=layout, cut_layers=cut)
    assert command.run(options, "pilotfish train …") == 0
    made = tmp_path / "out" / "external" / command.EXPORT
    drafter = build_drafter(
        DrafterConfig("draft_model", str(made), target=str(target), target_tokenizer=str(target))
    )
    assert isinstance(drafter, ExternalDrafter)
    facts = json.loads((made / "provenance.json").read_text())
    assert facts["mechanism"] == "external"
    whole = layout == "transformers"  # other engines read no d2t beside a draft model
    assert facts["draft_vocabulary"]["tokens"] == (128 if whole else 32)
    assert drafter._forward.model.get_output_embeddings().out_features == (128 if whole else 32)
    assert facts["validation"]["acceptance_length"]["3"] >= 1.0
    assert whole != bool(list((tmp_path / "out").glob("vocabulary*")))


def test_a_run_that_goes_on_with_other_tokens_to_draft_writes_them_however_good_the_last_were(
    target: Path, tmp_path: Path
) -> None:
    """What more tokens reached is no measure for fewer."""
    made = tmp_path / "out" / "external" / command.EXPORT
    options = given(target, tmp_path, mechanism="external", layout="", draft_vocab=128)
    assert command.run(options, "") == 0
    assert "d2t" not in load_file(made / "model.safetensors")
    _edit_state(tmp_path / "out" / "external", best=9.0, drafted=None)  # as before it was said
    assert command.run({**options, "draft_vocab": 32, "minutes": 0.02}, "") == 0
    assert len(load_file(made / "model.safetensors")["d2t"]) == 32
    _edit_state(tmp_path / "out" / "external", best=9.0)
    before = (made / "model.safetensors").read_bytes()
    assert command.run({**options, "draft_vocab": 32, "minutes": 0.03}, "") == 0
    assert (made / "model.safetensors").read_bytes() == before


def _edit_state(folder: Path, **changes: float | None) -> None:
    """Of a checkpoint; None takes the field away."""
    path = folder / checkpoint.NAME
    with safe_open(path, framework="pt") as opened:
        facts = dict(opened.metadata())
    state = json.loads(facts["state"]) | changes
    facts["state"] = json.dumps({n: v for n, v in state.items() if v is not None})
    save_file(load_file(path), path, metadata=facts)


def test_a_draft_model_begins_with_the_layers_of_one_that_was_trained(
    target: Path, tmp_path: Path
) -> None:
    options = given(target, tmp_path, mechanism="external", layout="")
    assert command.run(options, "") == 0
    first = (tmp_path / "out" / "external" / command.EXPORT).rename(tmp_path / "first")
    assert command.run({**options, "fresh": True, "init_from": first, "record": False}, "") == 0


@pytest.mark.parametrize(
    ("cut", "words"), [("0;1", "--cut-layers"), ("0,9", "layers 0 to 7"), ("3,1", "in their order")]
)
def test_layers_that_cannot_be_cut_are_one_line_that_names_them(
    cut: str, words: str, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = given(target, tmp_path, mechanism="external", layout="", cut_layers=cut)
    assert command.run(options, "") == 1
    assert words in " ".join(capsys.readouterr().err.split())
