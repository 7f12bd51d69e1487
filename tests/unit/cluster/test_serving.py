import os
import socket
import sys
from pathlib import Path

import pytest

from cluster import serving_local
from cluster.serving import free_port
from cluster.serving_checks import check_port
from cluster.serving_wait import ServingError, is_permanent, last_error


def test_a_busy_port_is_an_error_that_names_the_flag() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(ServingError, match=rf"127\.0\.0\.1:{port} .*--port"):
            check_port("127.0.0.1", port, "--port")


def test_a_free_port_passes_and_stays_free() -> None:
    port = free_port()
    check_port("127.0.0.1", port, "--port")
    check_port("127.0.0.1", port, "--port")


def test_a_small_machine_gets_tickets_for_the_whole_application() -> None:
    assert serving_local.logical_cpus(2.3, cores=2) == 3
    assert serving_local.logical_cpus(2.3, cores=16) == 16


def test_the_environment_is_put_back_and_the_users_settings_win(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_SERVE_CONTROL_LOOP_INTERVAL_S", "7")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    before = dict(os.environ)
    with serving_local.environment():
        assert os.environ["RAY_SERVE_CONTROL_LOOP_INTERVAL_S"] == "7"
        assert os.environ["RAY_AUTH_MODE"] == "disabled"
        assert "RAY_AUTH_TOKEN" not in os.environ
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert dict(os.environ) == before


def test_a_private_cluster_has_a_token_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    tokens = []
    for _ in range(2):
        with serving_local.environment():
            assert os.environ["RAY_AUTH_MODE"] == "token"
            tokens.append(os.environ["RAY_AUTH_TOKEN"])
    assert len(set(tokens)) == 2
    assert all(len(token) >= 32 for token in tokens)


def test_workers_of_a_checkout_find_our_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    with serving_local.environment():
        paths = os.environ["PYTHONPATH"].split(os.pathsep)
    assert paths[0] == "elsewhere"
    assert any((Path(path) / "cluster" / "app.py").is_file() for path in paths)


def test_importing_serving_brings_in_neither_ray_nor_torch() -> None:
    import subprocess

    code = "import sys, cluster.cli.serve; print(sorted({'ray', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "The deployment failed to start 3 times:\n\x20 File x, line 1\n"
            "ray.exceptions.RayTaskError(ModelLoadError): ray::EngineProcess.load()\n"
            "actors.engine.errors.ModelLoadError: x has no config.json\n",
            "x has no config.json",
        ),
        ("something else\nwent wrong\n", "went wrong"),
        ("", "Serve gave no reason"),
    ],
)
def test_a_start_that_fails_gives_its_reason_in_one_line(message: str, expected: str) -> None:
    assert last_error(message) == expected


def test_only_errors_that_come_again_end_the_wait_at_once() -> None:
    trace = "A replica failed to start. Retrying 2 more times. Error:\nTraceback (most recent\n"
    assert is_permanent(trace + "actors.engine.errors.ModelLoadError: no weights\n")
    assert not is_permanent(trace + "torch.OutOfMemoryError: no room\n")
    assert not is_permanent("")
