"""`pilotfish bench` on the command line: what was typed, or one line that says what was meant."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cluster.bench.legs import STANDARD
from cluster.bench.options import BenchOptions
from cluster.cli import bench as module
from cluster.cli.main import main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["pilotfish", "bench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[BenchOptions]:
    """Options that would have been run."""
    runs: list[BenchOptions] = []
    monkeypatch.setattr("cluster.bench.runner.run", lambda options: runs.append(options) or 0)
    monkeypatch.setattr("cluster.cli.models.make_ready_by_name", lambda name: None)
    return runs


def test_flags_become_options(monkeypatch: pytest.MonkeyPatch, asked: list[BenchOptions]) -> None:
    flags = ("--legs", "ngram:5", "--max_concurrency", "1,8", "--temperature", "0", "--runs", "2")
    assert run(monkeypatch, "m/n", *flags, "--dataset", "q.jsonl", "--output", "out") == 0
    (options,) = asked
    assert [leg.name for leg in options.legs] == ["standard", "ngram:5@remote"]
    assert [load.clients for load in options.loads] == [1, 8]
    assert (options.model, options.runs, options.clients) == ("m/n", 2, 8)
    assert (options.dataset, options.output) == (Path("q.jsonl"), Path("out"))
    assert options.command.startswith("pilotfish bench m/n --legs ngram:5")


def test_a_key_is_used_and_never_recorded(
    monkeypatch: pytest.MonkeyPatch, asked: list[BenchOptions]
) -> None:
    assert run(monkeypatch, "--attach", "h:1", "--api-key", "s3cret", "--legs=served:2") == 0
    assert asked[0].api_key == "s3cret"
    assert asked[0].command == "pilotfish bench --attach h:1 --api-key KEY --legs=served:2"


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "sys.argv = ['pilotfish', 'bench', '--help']\n"
        "from cluster.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "heavy = {'torch', 'ray', 'numpy', 'grpc', 'matplotlib', 'rich', 'cluster.bench'}\n"
        "print('LOADED', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout.endswith("LOADED []\n"), done.stderr


def test_the_defaults_are_three_legs_at_two_temperatures_and_two_loads(
    monkeypatch: pytest.MonkeyPatch, asked: list[BenchOptions]
) -> None:
    assert run(monkeypatch) == 0
    (options,) = asked
    assert options.legs[0] == STANDARD
    assert {leg.placement for leg in options.legs[1:]} == {"remote", "colocated"}
    assert len(options.settings) == 4
    assert options.output is not None
    assert options.output.parent == Path("pilotfish-bench")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--num-warmups", "3"], "nearest: --warmup"),
        (["--speculative-config", "{}"], "nearest: --legs"),
        (["--base-url=http://x"], "nearest: --attach"),
        (["--legs", "sufix:4"], "did you mean 'suffix'"),
        (["--max-concurrency", "many"], "--max-concurrency: 'many'"),
        (["--temperature", "hot"], "--temperature: 'hot'"),
        (["--dtype", "bfloat"], "did you mean 'bfloat16'"),
        (["--max-token", "4"], "--max-tokens"),
    ],
)
def test_a_wrong_flag_is_one_line_that_names_the_right_one(
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[BenchOptions],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, *arguments) == 2
    assert words in capsys.readouterr().err
    assert asked == []


def test_no_flag_of_ours_is_called_foreign() -> None:
    from typer.main import get_command

    from cluster.cli.main import app

    command = get_command(app).commands["bench"]  # type: ignore[attr-defined]
    ours = {name for parameter in command.params for name in parameter.opts}
    assert not ours & module.FOREIGN.keys()
    nearest = {text.split()[0].rstrip(",") for text in module.FOREIGN.values() if text}
    assert nearest <= ours
