"""`pilotfish drafter inspect` on drafters of every public format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.cli.drafter import app
from tests.checkpoints.block import FORMATS, deepspec, zlab
from tests.checkpoints.target import target_folder


def inspected(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["inspect", *arguments])
    return found.exit_code, found.stdout, found.stderr


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_named_with_its_taps_and_fits_its_target(name: str, tmp_path: Path) -> None:
    written = FORMATS[name](tmp_path)
    code, text, _ = inspected(str(tmp_path), "--target", str(target_folder()), "--json")
    said = json.loads(text)
    assert (code, said["fits"], said["reasons"]) == (0, True, [])
    assert said["method"] == written.mechanism
    assert said["taps"] == list(written.spec.block.taps)
    assert said["spec"]["block"]["block"] == 5


def test_people_read_what_it_is_and_why_it_does_not_fit(tmp_path: Path) -> None:
    deepspec(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(
        json.dumps({**config, "num_target_layers": 36, "target_layer_ids": [1, 9, 33]})
    )
    code, text, _ = inspected(str(tmp_path))
    assert code == 0
    assert "dspark (written by DeepSpec)" in text
    assert "hidden states 2, 10, 34" in text
    assert "fits" not in text
    code, text, _ = inspected(str(tmp_path), "--target", str(target_folder()))
    assert code == 1
    assert "it reads hidden state 10" in text
    assert "for a target of 36 layers, this one has 6" in text


def test_a_tokenizer_that_means_other_tokens_is_the_reason(tmp_path: Path) -> None:
    zlab(tmp_path)
    tokenizer = json.loads((target_folder() / "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    code, text, _ = inspected(str(tmp_path), "--target", str(target_folder()))
    assert code == 1
    assert "token id 0 is 'a' in the target's vocabulary and 'b' in the drafter's" in text


def test_what_is_no_drafter_is_one_line(tmp_path: Path) -> None:
    code, _, error = inspected(str(target_folder()))
    assert code == 1
    assert error.startswith("pilotfish: error: ")
    assert "LlamaForCausalLM is no drafter" in error
    code, _, error = inspected(str(tmp_path / "nowhere"))
    assert (code, error.count("\n")) == (1, 1)
