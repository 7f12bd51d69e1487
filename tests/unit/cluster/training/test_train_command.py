"""`pilotfish train` from prompts to a drafter, on a tiny target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actors.drafters.checkpoints.files import open_checkpoint
from actors.drafters.checkpoints.table import read_head
from actors.training.checkpoint import NAME
from cluster.cli import train as cli
from cluster.training import command


def given(target: Path, folder: Path, **changes: Any) -> dict[str, Any]:
    for name, texts in (("train", "abcdefgh"), ("valid", "ij")):
        lines = [json.dumps({"category": "x", "prompt": 5 * text}) for text in texts]
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return {
        "mechanism": "eagle3",
        "target": str(target),
        "prompts": folder / "train.jsonl",
        "valid": folder / "valid.jsonl",
        "output": folder / "out",
        "minutes": 0.01,
        "num_prompts": 4,
        "num_valid": 2,
        "max_tokens": 8,
        "max_prompt_tokens": 20,
        "sampled_share": 0.25,
        "quote_share": 0.0,
        "max_answer_bytes": "1g",
        "record": True,
        "prompt_share": 0.0,
        "draft_vocab": 32,
        "layers": 2,
        "intermediate": 0,
        "cut_layers": "",
        "drafts": 3,
        "mask_token": 4,
        "learning_rate": 1e-3,
        "init_from": None,
        "fresh": False,
        "layout": "speculators",
        "device": "cpu",
        "threads": 1,
        "seed": 0,
        **changes,
    }


def steps(folder: Path, mechanism: str) -> list[int]:
    lines = (folder / "out" / mechanism / "curve.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines]


def test_a_run_ends_in_a_drafter_that_loads_and_says_where_it_comes_from(
    target: Path, tmp_path: Path
) -> None:
    assert command.run(given(target, tmp_path), "pilotfish train …") == 0
    made = tmp_path / "out" / "eagle3" / command.EXPORT
    head = read_head(open_checkpoint(made))
    assert head.mechanism == "eagle3"
    assert head.draft_ids is not None
    assert len(head.draft_ids) == 32
    facts = json.loads((made / "provenance.json").read_text())
    assert facts["command"] == "pilotfish train …"
    assert facts["answers"]["prompts"] == 4
    assert facts["validation"]["acceptance_length"]["3"] >= 1.0
    assert str(tmp_path) not in json.dumps(facts)


def test_a_second_run_answers_nothing_again_and_trains_on(target: Path, tmp_path: Path) -> None:
    assert command.run(given(target, tmp_path), "") == 0
    shards = (tmp_path / "out" / "answers" / "shards.jsonl").read_text()
    more = given(target, tmp_path, minutes=0.02, num_prompts=8, record=False)
    assert command.run(more, "") == 0
    assert (tmp_path / "out" / "answers" / "shards.jsonl").read_text() == shards
    first, *_, last = steps(tmp_path, "eagle3")
    assert last > first
    assert command.run(given(target, tmp_path, fresh=True), "") == 0
    assert len(steps(tmp_path, "eagle3")) == 1


def test_one_mechanism_begins_with_the_layers_of_another(target: Path, tmp_path: Path) -> None:
    assert command.run(given(target, tmp_path, mechanism="dspark"), "") == 0
    other = tmp_path / "out" / "dspark" / command.EXPORT
    assert command.run(given(target, tmp_path, mechanism="dflash", init_from=other), "") == 0
    assert (tmp_path / "out" / "dflash" / NAME).exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompts": Path("nowhere.jsonl")}, "--prompts"),
        ({"max_answer_bytes": "much"}, "--max-answer-bytes"),
        ({"layout": "z-lab"}, "--layout"),
        ({"mechanism": "dspark", "mask_token": 4000}, "mask token"),
        ({"valid": None}, "validation prompt"),
        ({"max_prompt_tokens": 1}, "--max-prompt"),
        ({"init_from": Path("nowhere")}, "nowhere"),
    ],
)
def test_what_cannot_be_had_is_one_line_that_names_it(
    changes: dict[str, Any],
    words: str,
    target: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = given(target, tmp_path, **changes)
    if changes.get("valid", "") is None:
        options["valid"] = options["prompts"]
    assert command.run(options, "") == 1
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_mechanism_that_is_not_trained_is_refused_with_those_that_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli._run({"mechanism": "medusa"})
    assert ended.value.code == 2
    assert "dspark, dflash, eagle3, mtp" in capsys.readouterr().err
