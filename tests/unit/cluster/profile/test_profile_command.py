"""`pilotfish profile`: a model is measured, shown and kept, or one line says why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from actors.engine.profile_kind import Kind
from cluster.cli.main import app
from cluster.profile import report
from cluster.profile.measure import Measured
from policies.choice import Arm
from policies.estimate_cost import Sample
from tests.models import make_rand, save_tiny

RUN = CliRunner()
KIND = Kind("digest", "float32", "eager", "a processor", 2, 1, 64, 0)
FOUND = Measured(
    "model",
    KIND,
    group=4,
    max_num_seqs=4,
    samples=[
        Sample(1, 0.001, 1, 64),
        Sample(2, 0.001, 1, 64),
        Sample(4, 0.004, 1, 64),
        Sample(8, 0.004, 1, 64),
        Sample(8, 0.0047, 8, 64),
        Sample(1, 0.0014, 1, 464),
    ],
    drafts=[Arm("suffix", True, 3, ((1, 1, 0.0001), (1, 3, 0.0002), (8, 3, 0.0004)))],
    silent=["custom"],
    kept=Path("/cache/profile.json"),
)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path / "cache"))
    return save_tiny(make_rand(), tmp_path / "model")


def test_a_model_is_measured_with_its_drafters_and_the_profile_is_kept(model: str) -> None:
    ran = RUN.invoke(
        app,
        [
            *("profile", model, "--json", "--dtype", "float32", "--enforce-eager"),
            *("--max-num-seqs", "4"),
            "--speculative-config",
            '[{"method": "suffix", "num_speculative_tokens": 3}, {"method": "ngram"}]',
        ],
    )
    assert ran.exit_code == 0, ran.output
    said = json.loads(ran.stdout)
    assert {"rows", "seconds", "sequences", "context"} == set(said["step"]["samples"][0])
    assert [draft["mechanism"] for draft in said["drafts"]] == ["suffix", "ngram"]
    assert {draft["placement"] for draft in said["drafts"]} == {"remote"}
    assert {(e["mechanism"], e["sequences"]) for e in said["break_even"]} == {
        (mechanism, sequences) for mechanism in ("suffix", "ngram") for sequences in (1, 4)
    }
    assert max(e["depth"] for e in said["break_even"] if e["mechanism"] == "suffix") == 3
    kept = json.loads(Path(said["kept"]).read_text())
    assert kept["samples"] == said["step"]["samples"]
    assert kept["kind"] == said["kind"]


def shown(found: Measured) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    report.show(found, console)
    return " ".join(console.export_text().split())


@pytest.mark.parametrize(
    "wanted",
    [
        "4 4.00 4.00x ▲",
        "a sequence more: 100 us; 1000 tokens of context more: 1000 us",
        "first guess D = tile/G - 1 = 31",
        "custom could not be timed",
        "kept in /cache/profile.json",
        "0.5 ms of wire",
        "suffix (remote)",
    ],
)
def test_the_tables_say(wanted: str) -> None:
    assert wanted in shown(FOUND)


def test_what_no_acceptance_pays_for_is_said() -> None:
    evens = {(e.sequences, e.depth): e for e in report.evens(FOUND)}
    assert evens[1, 3].acceptance is None
    assert evens[1, 1].needs == pytest.approx((0.001 + 0.0001 + 0.0005) / 0.001)
    assert report.NEVER in shown(FOUND)


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (lambda model: [model, "--max-num-seqs", "0"], "--max-num-seqs"),
        (lambda model: [model, "--dtype", "float8"], "--dtype"),
        (lambda model: [model, "-sc", "{"], "--speculative-config"),
        (lambda model: [model + "-is-not-there"], "no such folder"),
    ],
)
def test_what_is_wrong_is_named(flags: Callable[[str], list[str]], word: str, model: str) -> None:
    ran = RUN.invoke(app, ["profile", *flags(model)])
    assert ran.exit_code in (1, 2)
    assert word in ran.output
    assert len(ran.output.strip().splitlines()) == 1
