"""`pilotfish simulate`: a YAML file, its legs side by side, and faults as one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cluster.cli.main import app
from cluster.simulate.legs import LegError, all_legs, check
from cluster.simulate.study import StudyError, load

RUN = CliRunner()
ROOT = Path(__file__).resolve().parents[4]

SMALL: dict[str, Any] = {
    "title": "small",
    "target": {"fixed_s": 0.007, "row_s": 2e-5},
    "duration_s": 0.6,
    "cohorts": {"chat": {"prompt": 20, "output": 30}},
    "ways": {
        "head": {
            "placement": "remote",
            "acceptance": {"chat": [0.7]},
            "max_depth": 4,
            "base_s": 0.001,
        }
    },
    "phases": [{"start_s": 0, "clients": {"chat": 2}}, {"start_s": 0.3, "clients": {"chat": 1}}],
}


def written(folder: Path, **change: Any) -> Path:
    file = folder / "scenario.yaml"
    file.write_text(yaml.safe_dump({**SMALL, **change}))
    return file


def test_every_example_is_a_valid_study() -> None:
    files = sorted((ROOT / "infra" / "sim").glob("*.yaml"))
    assert len(files) >= 4
    for file in files:
        check(load(file).scenario, load(file).legs)


def test_all_legs_run_side_by_side_with_standard_decode_first(tmp_path: Path) -> None:
    done = RUN.invoke(app, ["simulate", str(written(tmp_path)), "--json"])
    assert done.exit_code == 0, done.output
    outcomes = json.loads(done.output)["outcomes"]
    assert [o["leg"] for o in outcomes] == ["standard", "head:1", "head:2", "head:4", "policy"]
    assert all(o["goodput"] > 0 and len(o["phases"]) == 2 for o in outcomes)
    assert outcomes[2]["acceptance_length"] > outcomes[0]["acceptance_length"] == 1.0


def test_a_fleet_is_told_by_the_same_file(tmp_path: Path) -> None:
    file = written(tmp_path, fleet=True, verifiers=3)
    picture = tmp_path / "it.png"
    done = RUN.invoke(
        app, ["simulate", str(file), "--legs", "standard,policy", "--plot", str(picture)]
    )
    assert done.exit_code == 0, done.output
    assert "3 verifier(s)" in done.output
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"durations": 3}, "durations: Unexpected keyword argument"),
        ({"duration_s": "long"}, "duration_s: Input should be a valid number"),
        ({"cohorts": {"chat": {"prompts": 3}}}, "cohorts.chat.prompts"),
        ({"target": {"model": "GPT-9", "gpu": "H100"}}, "unknown model 'GPT-9'; known"),
        ({"phases": [{"start_s": 0, "clients": {"poem": 1}}]}, "unknown cohort poem"),
        (
            {
                "ways": {
                    "w": {"placement": "remote", "acceptance": {}, "roofline": {"mechanism": "x"}}
                }
            },
            "roofline needs a target with a model",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_the_field(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(StudyError, match=message):
        load(written(tmp_path, **change))
    done = RUN.invoke(app, ["simulate", str(written(tmp_path, **change))])
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_an_unknown_leg_names_those_there_are(tmp_path: Path) -> None:
    scenario = load(written(tmp_path)).scenario
    for leg in ("head", "head:0", "head:x", "tail:3"):
        with pytest.raises(LegError, match="known: standard, head:D, policy"):
            check(scenario, (leg,))
    assert all_legs(scenario)[0] == "standard"
    done = RUN.invoke(app, ["simulate", str(written(tmp_path)), "--legs", "tail:3"])
    assert done.exit_code == 2


def test_the_engines_own_choice_of_rows_is_a_leg_and_not_of_fleets(tmp_path: Path) -> None:
    file = written(tmp_path)
    done = RUN.invoke(app, ["simulate", str(file), "--legs", "standard,engine:head", "--json"])
    assert done.exit_code == 0, done.output
    plain, engine = json.loads(done.output)["outcomes"]
    assert engine["accepted"] > 0.4
    assert engine["goodput"] > 1.2 * plain["goodput"]
    with pytest.raises(LegError, match="unknown leg 'engine:head'"):
        check(load(file).scenario, ("engine:head",), fleet=True)


def test_a_ways_roofline_gives_its_seconds_and_bytes(tmp_path: Path) -> None:
    way = {"placement": "remote", "acceptance": {"chat": [0.7]}}
    ways = {
        "eagle3": {**way, "roofline": {"mechanism": "eagle3"}},
        "slow": {**way, "roofline": {"mechanism": "eagle3", "gpu": "L4", "form": "raw"}},
    }
    target = {"model": "Llama-3.1-8B", "gpu": "H100"}
    read = load(written(tmp_path, target=target, ways=ways)).scenario.ways
    assert read["eagle3"].feature_bytes == 4096 + 128
    assert read["slow"].feature_bytes == 24576
    assert read["slow"].token_s > 5 * read["eagle3"].token_s > 0.0
