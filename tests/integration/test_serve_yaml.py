"""`serve run` and `serve deploy` with the YAML of infra/serve, on a Ray of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml

from cluster.config import AppArgs
from cluster.serving import free_port
from cluster.serving_local import private_token
from pilotfish import Client, UnavailableError
from tests.integration.processes import end_group, eventually

pytestmark = pytest.mark.cluster

_DASHBOARD = re.compile(r"https?://(127\.0\.0\.1:\d+)")


@dataclass(frozen=True, slots=True)
class Served:
    config: dict[str, Any]
    folder: Path
    grpc: str
    output: Path
    environment: dict[str, str]

    def written(self, name: str, config: dict[str, Any]) -> str:
        path = self.folder / name
        path.write_text(yaml.safe_dump(config))
        return str(path)

    def dashboard(self) -> str:
        found = [
            a
            for line in self.output.read_text().splitlines()
            if "ashboard" in line
            for a in _DASHBOARD.findall(line)
        ]
        return f"http://{found[0]}" if found else ""

    def serve(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "ray.serve.scripts", *arguments]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=120
        )
        return done.stdout + done.stderr


def environment(repository: Path, folder: Path) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    clean.pop("PYTHONDONTWRITEBYTECODE", None)
    return (clean | private_token(clean)) | {
        "PYTHONPATH": str(repository),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TMPDIR": str(folder),
        "COLUMNS": "200",
    }


@pytest.fixture(scope="module")
def served(
    repository: Path, tiny_model: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """`serve run` in a process group of its own, with the project's YAML around a tiny model."""
    folder = tmp_path_factory.mktemp("serve")
    config = yaml.safe_load((repository / "infra/serve/pilotfish.yaml").read_text())
    (app,) = config["applications"]
    AppArgs.model_validate(app["args"])
    config["http_options"]["port"] = free_port()
    app["args"] |= {"model": tiny_model, "dtype": "float64"}
    app["args"]["gateway"]["grpc_port"] = free_port()
    app["args"]["verifier"] = {"num_cpus": 0.1, "threads": 1}
    app["deployments"].append({"name": "Verifier", "num_replicas": 2})
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as ray_folder:
        served = Served(
            config,
            folder,
            f"127.0.0.1:{app['args']['gateway']['grpc_port']}",
            folder / "output",
            environment(repository, Path(ray_folder)),
        )
        path = served.written("app.yaml", config)
        with served.output.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "ray.serve.scripts", "run", path],
                env=served.environment | {"RAY_ADDRESS": "local"},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                yield served
            finally:
                end_group(process, signal.SIGINT, 60.0)  # as Ctrl-C does


def depth(served: Served) -> int:
    """D of the newest snapshot; -1 while nobody answers."""
    with Client(served.grpc) as client:
        try:
            return client.status().fallback.depth
        except UnavailableError:
            return -1


def test_serve_run_takes_the_yaml(served: Served) -> None:
    eventually(lambda: depth(served) == 4, 120.0, every_s=0.5)
    with Client(served.grpc) as client:
        assert client.generate("abc", max_tokens=4, temperature=0).usage.completion_tokens == 4


def test_serve_deploy_changes_the_draft_length_in_place(served: Served) -> None:
    eventually(lambda: depth(served) == 4, 120.0, every_s=0.5)
    with Client(served.grpc) as client:
        # Each verifier is known from its own first report.
        eventually(lambda: len(client.status().verifiers) == 2, 60.0)
        before = sorted(v.pid for v in client.status().verifiers)
        policy, _ = served.config["applications"][0]["deployments"]
        policy["user_config"] = {"num_speculative_tokens": 2}
        path = served.written("two.yaml", served.config)
        served.serve("deploy", path, "-a", served.dashboard())
        eventually(lambda: depth(served) == 2, 30.0)
        assert sorted(v.pid for v in client.status().verifiers) == before


def test_a_verifier_that_is_drained_loses_no_stream(served: Served) -> None:
    """Pitfall R05: five streams at any moment while one of two verifiers goes."""
    eventually(lambda: depth(served) > 0, 120.0, every_s=0.5)
    gone = Event()
    with Client(served.grpc) as client, ThreadPoolExecutor(5) as pool:

        def text(seed: int) -> tuple[int, ...]:
            return client.generate("abc", max_tokens=400, temperature=1.0, seed=seed).token_ids

        def until_gone(seed: int) -> set[tuple[int, ...]]:
            texts = {text(seed)}
            while not gone.is_set():
                texts.add(text(seed))
            return texts

        eventually(lambda: len(client.status().verifiers) == 2, 60.0)
        expected = [{text(seed)} for seed in range(5)]
        running = [pool.submit(until_gone, seed) for seed in range(5)]
        try:
            _, verifier = served.config["applications"][0]["deployments"]
            verifier["num_replicas"] = 1
            path = served.written("one.yaml", served.config)
            served.serve("deploy", path, "-a", served.dashboard())
            eventually(lambda: len(client.status().verifiers) == 1, 60.0)
        finally:
            gone.set()
        assert [texts.result(timeout=60) for texts in running] == expected


def test_serve_deploy_refuses_an_unknown_key_and_names_the_known_ones(served: Served) -> None:
    eventually(lambda: depth(served) > 0, 120.0, every_s=0.5)
    config = served.config | {
        "applications": [
            *served.config["applications"],
            {
                "name": "wrong",
                "route_prefix": "/wrong",
                "import_path": "cluster.app:build",
                "args": {"modle": "x"},
            },
        ]
    }
    served.serve("deploy", served.written("wrong.yaml", config), "-a", served.dashboard())

    def refusal() -> str:
        status = served.serve("status", "-a", served.dashboard())
        return status if "unknown key" in status else ""

    message = re.sub(r"\s+", " ", eventually(refusal, 60.0, every_s=1.0))
    for name in AppArgs.model_fields:
        assert name in message
