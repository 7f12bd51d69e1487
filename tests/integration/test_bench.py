"""`pilotfish bench` on real servers: exact texts, a lost cause refused, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import Deploy, Deployed, oracle
from tests.integration.processes import descendants, eventually, running_pids

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    lines = [
        json.dumps({"id": i, "category": "ab"[i % 2], "prompt": f"abc{i}" * 5}) for i in range(40)
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def start_bench(repository: Path, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPATH"] = str(repository)
    with log.open("wb") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "cluster.cli.main", "bench", *arguments],
            env=environment | {"COLUMNS": "200"},
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def finish(process: subprocess.Popen[bytes], log: Path) -> tuple[int, str]:
    try:
        return process.wait(timeout=240), log.read_text("utf-8")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(timeout=30)


def attached(app: Deployed, prompts: Path, output: Path) -> list[str]:
    return [
        *("--attach", app.grpc, "--attach-http", app.http_url, "--dataset-path", str(prompts)),
        *("--num-prompts", "3", "--runs", "2", "--max-tokens", "12", "--warmup", "1"),
        *("--max-concurrency", "2", "--request-rate", "20", "--output", str(output)),
    ]


def test_every_leg_of_an_attached_server_writes_standard_decodes_text(
    deploy: Deploy, tiny_model: str, repository: Path, prompts: Path, tmp_path: Path
) -> None:
    # Co-located: a block is never late, however busy the machine.
    app = deploy(speculative_config=oracle(tiny_model) | {"placement": "colocated"})
    arguments = [*attached(app, prompts, tmp_path / "out"), "--legs", "served:2,served:4"]
    code, said = finish(
        start_bench(repository, tmp_path / "log", *arguments, "--temperature", "0,1"),
        tmp_path / "log",
    )
    assert code == 0, said
    document: dict[str, Any] = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert document["refused"] == []
    figures = document["figures"]
    assert len(figures) == 3 * 2 * 2  # legs, temperatures, loads
    assert {f["leg"] for f in figures} == {"standard", "served:2", "served:4"}
    for f in figures:
        assert f["identical"] == f["compared"] > 0  # fp64: no near-tie to hide behind
        if f["depth"]:
            assert f["drafted"] > 0
            assert f["positions"][0]["rate"] == 1.0  # its drafter runs the target
            assert f["split"]["verify_ms"] > 0
            assert f["ratio_decode"]["value"] > 0
        else:
            assert (f["drafted"], f["acceptance_length"]) == (0, 1.0)
    assert (tmp_path / "out" / "pareto.png").read_bytes().startswith(b"\x89PNG")
    assert "data:image/png" in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_a_leg_without_a_drafter_is_refused_and_not_reported(
    deploy: Deploy, repository: Path, prompts: Path, tmp_path: Path
) -> None:
    app = deploy(speculative_config=None)
    arguments = [*attached(app, prompts, tmp_path / "out"), "--temperature", "0"]
    code, said = finish(start_bench(repository, tmp_path / "log", *arguments), tmp_path / "log")
    assert code == 1, said
    assert "REFUSED served:4" in said
    assert "nothing was drafted" in said
    document = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert {f["leg"] for f in document["figures"]} == {"standard"}


def test_servers_of_its_own_are_gone_after_ctrl_c(
    repository: Path, tiny_model: str, prompts: Path, tmp_path: Path
) -> None:
    log, output = tmp_path / "log", tmp_path / "out"
    process = start_bench(
        repository,
        log,
        tiny_model,
        *("--dtype", "float32", "--max-model-len", "512", "--legs", "suffix:3"),
        *("--dataset-path", str(prompts), "--max-tokens", "200", "--runs", "1000"),
        *("--output", str(output)),
    )
    try:
        eventually(lambda: "measuring" in log.read_text("utf-8"), 200.0, every_s=0.2)
        family = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
        code, said = finish(process, log)
    finally:
        finish(process, log)
    assert code == 130, said
    assert "stopped" in said
    assert "Traceback" not in said
    eventually(lambda: not running_pids(family), 30.0)
    assert not (output / "report.json").exists()
