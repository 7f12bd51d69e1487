"""`pilotfish serve` as a person meets it: endpoints, a clean stop, reasons instead of traces."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from cluster.serving import free_port
from cluster.serving_local import private_token
from tests.integration.processes import descendants, eventually, kill, running_pids

pytestmark = pytest.mark.cluster


def clean_environment(repository: Path) -> dict[str, str]:
    """Ours without the test session's Ray."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment | {"PYTHONPATH": str(repository), "COLUMNS": "200"}


def start_cli(
    repository: Path, output: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """`pilotfish serve` in a session of its own, writing to `output`."""
    with output.open("wb") as sink:
        return subprocess.Popen(
            [sys.executable, "-m", "cluster.cli.main", "serve", *arguments],
            env=clean_environment(repository) | (environment or {}),
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait(timeout=30)


def test_serve_says_where_it_is_and_stops_without_a_trace(
    repository: Path, tiny_model: str, tmp_path: Path
) -> None:
    output, port = tmp_path / "output", free_port()
    process = start_cli(repository, output, tiny_model, "--port", str(port), "--dtype", "float32")
    try:
        eventually(lambda: "ready; Ctrl-C stops it" in output.read_text(), 120.0, every_s=0.5)
        assert f"http://127.0.0.1:{port}/v1" in output.read_text()
        answer = httpx.post(
            f"http://127.0.0.1:{port}/v1/completions",
            json={"prompt": "abc", "max_tokens": 4, "temperature": 0},
            timeout=30,
        )
        assert answer.json()["usage"]["completion_tokens"] == 4
        family = descendants(process.pid)
        folders = {Path(f) for pid in family for f in ray_folders(pid)}
        assert folders
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
        assert process.wait(timeout=60) == 0
    finally:
        end(process)
    eventually(lambda: not running_pids(family), 30.0)
    assert not [folder for folder in folders if folder.exists()]
    assert "Traceback" not in output.read_text()


def ray_folders(pid: int) -> list[str]:
    """The private Ray's folder, from the command line of one of its processes."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []
    logs = [word.split("=", 1)[1] for word in command if word.startswith("--log_dir=")]
    return [str(Path(log).parents[1]) for log in logs]


@contextmanager
def running_ray(repository: Path, token: dict[str, str]) -> Iterator[str]:
    """Somebody else's Ray; yields its address."""
    port = free_port()
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp", ignore_cleanup_errors=True) as home:
        options = (f"--port={port}", f"--temp-dir={home}", "--num-cpus=4")
        less = ("--include-dashboard=false", "--object-store-memory=134217728")
        ray = subprocess.Popen(
            [*command, *options, *less, "--disable-usage-stats"],
            env=clean_environment(repository) | token,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            eventually(lambda: listens(port), 60.0, every_s=0.2)
            yield f"127.0.0.1:{port}"
            assert ray.poll() is None  # it is not ours to end
        finally:
            for pid in running_pids(descendants(ray.pid) | {ray.pid}):
                with suppress(ProcessLookupError):
                    kill(pid)
            ray.wait(timeout=30)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_serve_joins_a_ray_and_leaves_it_running(
    repository: Path, tiny_model: str, tmp_path: Path
) -> None:
    output, port, token = tmp_path / "output", free_port(), private_token({})
    with running_ray(repository, token) as address:
        arguments = (tiny_model, "--address", address, "--port", str(port), "--dtype", "float32")
        process = start_cli(repository, output, *arguments, environment=token)
        try:
            eventually(lambda: "ready; Ctrl-C stops it" in output.read_text(), 120.0, every_s=0.5)
            answer = httpx.post(
                f"http://127.0.0.1:{port}/v1/completions",
                json={"prompt": "abc", "max_tokens": 4, "temperature": 0},
                timeout=30,
            )
            assert answer.json()["usage"]["completion_tokens"] == 4
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        finally:
            end(process)
    assert "Traceback" not in output.read_text()


def test_a_start_that_is_given_up_leaves_nothing(
    repository: Path, tiny_model: str, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    process = start_cli(repository, output, tiny_model, "--port", str(free_port()))
    try:
        eventually(lambda: "waiting for" in output.read_text(), 60.0, every_s=0.2)
        family = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 130
    finally:
        end(process)
    eventually(lambda: not running_pids(family), 30.0)
    assert "Traceback" not in output.read_text()


def test_a_busy_port_is_said_before_ray_starts(
    repository: Path, tiny_model: str, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        process = start_cli(repository, output, tiny_model, "--port", port)
        try:
            assert process.wait(timeout=60) == 1
        finally:
            end(process)
    said = output.read_text()
    assert f"cannot listen on 127.0.0.1:{port}" in said
    assert "--port" in said
    assert "starting Ray" not in said


def test_a_model_that_cannot_be_loaded_is_a_reason_and_not_a_stack_trace(
    repository: Path, tiny_model: str, tmp_path: Path
) -> None:
    hollow = tmp_path / "hollow"
    shutil.copytree(tiny_model, hollow)
    for weights in hollow.glob("*.safetensors"):
        weights.unlink()
    output = tmp_path / "output"
    process = start_cli(repository, output, str(hollow), "--port", str(free_port()))
    try:
        assert process.wait(timeout=180) == 1
    finally:
        end(process)
    said = output.read_text()
    assert "neither *.safetensors nor *.gguf weights" in said
    assert "Traceback" not in said
