"""The command line as a process would see it; nothing heavy is ever imported."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from cluster.cli import main as module
from cluster.cli.main import main
from cluster.cli.models import make_ready
from cluster.config import AppArgs, SpeculativeConfig


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Exit code of `pilotfish ARGUMENTS` in this process."""
    monkeypatch.setattr(sys, "argv", ["pilotfish", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["serve"],
        ["chat"],
        ["demo"],
        ["models"],
        ["plan"],
        ["profile"],
        ["simulate"],
        ["version"],
    ],
)
def test_help_imports_neither_torch_nor_ray(command: list[str]) -> None:
    script = (
        "import sys\n"
        f"sys.argv = ['pilotfish', *{command!r}, '--help']\n"
        "from cluster.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as ended:\n    assert not ended.code, ended.code\n"
        "heavy = {'torch', 'ray', 'transformers', 'numpy', 'grpc', 'fastapi', 'httpx'}\n"
        "print('LOADED', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("LOADED []\n")
    assert "Usage: pilotfish" in done.stdout


def test_serve_turns_its_flags_into_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []
    serve = SimpleNamespace(run=lambda *given: calls.append(given) or 3)
    monkeypatch.setattr(module, "_implementation", lambda name: serve)
    monkeypatch.setenv("PILOTFISH_API_KEY", "")
    code = run(
        monkeypatch,
        *("serve", "a/b", "--host", "0.0.0.0", "--port", "9000", "--max_model_len", "8k"),
        *("-sc", '{"method": "ngram"}', "-tp", "1", "--api-key", "secret"),
    )
    assert code == 3
    ((args, host, port, address),) = calls
    assert (args.model, args.max_model_len, args.gateway.grpc_host) == ("a/b", 8000, "0.0.0.0")
    assert (host, port, address) == ("0.0.0.0", 9000, None)
    assert "secret" not in repr(args)
    assert module.os.environ["PILOTFISH_API_KEY"] == "secret"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--gpu-memory-utilization", "0.9"],
            "--gpu-memory-utilization is not supported; nearest: --kv-cache-memory-bytes",
        ),
        (
            ["--max-model-len", "-5"],
            "--max-model-len: must be greater than or equal to 2, not '-5'",
        ),
        (["--block-size", "0"], "--block-size: must be greater than or equal to 1, not '0'"),
        (["a/b", "--model", "c/d"], "--model: 'c/d' and the argument 'a/b' differ; give one"),
    ],
)
def test_a_bad_flag_is_one_line_and_exit_code_two(
    arguments: list[str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, "serve", *arguments) == 2
    assert capsys.readouterr().err == f"pilotfish: error: {line}\n"


def test_an_unknown_model_ends_serve_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "serve", "smollm", "--port", "0") == 1
    assert "Did you mean smollm2?" in capsys.readouterr().err


def test_a_missing_extra_is_named_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    for name in ("cluster.cli.chat", "cluster.cli.chat_client"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert run(monkeypatch, "chat") == 1
    assert "httpx is not installed: pip install 'pilotfish[torch,serve]'" in capsys.readouterr().err


def test_a_local_server_has_its_target_and_its_draft_model_made_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: list[str] = []
    monkeypatch.setattr("cluster.models.resolve.resolve", lambda name, progress: names.append(name))
    spec = SpeculativeConfig(method="draft_model", model="smollm2")
    make_ready(AppArgs(model="a/b", speculative_config=spec))
    make_ready(AppArgs(model="c/d"))
    assert names == ["a/b", "smollm2", "c/d"]


def test_models_list_names_size_licence_and_cache_state(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.setenv("PILOTFISH_CACHE", str(tmp_path_factory.mktemp("cache")))
    assert run(monkeypatch, "models", "list") == 0
    row = capsys.readouterr().out.splitlines()[-1].split()
    assert row == ["smollm2", "SmolLM2-135M-Instruct", "135M", "93", "MB", "Apache-2.0", "no"]


def test_version_names_the_packages_without_importing_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "version") == 0
    assert capsys.readouterr().out.startswith("pilotfish    0.1.0\n")
