"""One local Ray for the whole session, with pretended GPUs; one application a module or two.

Ray's settings are read when it is imported, hence the environment first.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster import serving_local
from cluster.config import AppArgs
from cluster.serving import free_port
from pilotfish import Client
from pilotfish.v1 import control_pb2
from tests.models import make_rand, make_succ, save_tiny

torch.set_num_threads(1)
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Deployed:
    """A running application: where its doors are, and a handle to its gateway."""

    name: str
    http_url: str
    grpc: str
    handle: Any

    def client(self) -> Client:
        return Client(self.grpc)

    def verifiers(self) -> list[control_pb2.VerifierStatus]:
        """What each verifier says of itself now, without a gateway's help."""
        from ray import serve

        handle = serve.get_deployment_handle("Verifier", app_name=self.name)
        reports = handle.broadcast("status").results(timeout_s=10.0)
        return [control_pb2.VerifierStatus.FromString(report) for report in reports]

    def placements(self, deployment: str) -> list[dict[str, Any]]:
        """Where the replicas of a deployment are, their process ids among it."""
        from ray import serve

        handle = serve.get_deployment_handle(deployment, app_name=self.name)
        found: list[dict[str, Any]] = handle.broadcast("placement").results(timeout_s=10.0)
        return found

    def scale(self, deployment: str, replicas: int) -> None:
        """As an operator does from outside. Needs `by_hand`."""
        import ray
        from ray.serve._private.common import DeploymentID
        from ray.serve.context import _get_global_client

        controller = _get_global_client()._controller
        which = DeploymentID(name=deployment, app_name=self.name)
        ray.get(controller.update_deployment_replicas.remote(which, replicas), timeout=10.0)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random Llama that depends on its whole cache, fp64, a character a token."""
    folder = tmp_path_factory.mktemp("tiny")
    return save_tiny(make_rand(max_position_embeddings=2048), folder)


@pytest.fixture(scope="session")
def alphabet_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Writes the alphabet round and round: the suffix drafter is soon always right, and fast."""
    return save_tiny(make_succ(max_position_embeddings=2048), tmp_path_factory.mktemp("succ"))


@pytest.fixture(scope="session")
def ray_http_port() -> Iterator[int]:
    """Ray and Serve, started once; the port of Serve's HTTP proxy."""
    with serving_local.environment():
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        local = serving_local.LocalRay(num_cpus=32, num_gpus=4, pretend_gpus=True)
        try:
            from ray import serve

            port = free_port()
            serve.start(
                http_options={"host": "127.0.0.1", "port": port, "request_timeout_s": None},
                logging_config={"log_level": "WARNING"},
            )
            yield port
        finally:
            local.stop()


Deploy = Callable[..., Deployed]


def oracle(model: str, depth: int = 4) -> dict[str, Any]:
    """A speculative configuration whose remote drafter is always right: it runs the target, and so
    takes as long as that. No policy would ask it; D is fixed."""
    return {
        "method": "custom_class",
        "model": "tests.drafters.oracle:OracleDrafter",
        "num_speculative_tokens": depth,
        "options": {"model": model},
        "adaptive": False,
    }


@pytest.fixture(scope="module")
def deploy(ray_http_port: int, tiny_model: str) -> Iterator[Deploy]:
    """`deploy(**args)` starts an application of `AppArgs`; all of a module's go at its end, while
    the next module's come. by_hand: an operator may scale it from outside."""
    from ray import serve

    from cluster.app import build

    names: list[str] = []

    def start(*, by_hand: bool = False, **args: Any) -> Deployed:
        name = f"app{next(_NUMBERS)}"
        settings: dict[str, Any] = {"model": tiny_model, "dtype": "float64", "max_num_seqs": 8}
        handle = serve.run(
            build(AppArgs.model_validate(settings | SMALL | args)),
            name=name,
            route_prefix=f"/{name}",
            logging_config={"log_level": "WARNING"},
            external_scaler_enabled=by_hand,
        )
        names.append(name)
        assert handle.wait_for_drafters.remote(120.0).result(timeout_s=130.0)
        endpoints = handle.endpoints.remote().result(timeout_s=10.0)
        url = f"http://127.0.0.1:{ray_http_port}/{name}"
        return Deployed(name, url, endpoints["grpc"], handle)

    yield start
    for name in names:
        serve.delete(name, _blocking=False)


SMALL = {
    "verifier": {"num_cpus": 0.1, "threads": 1},
    "drafter": {"num_cpus": 0.1, "threads": 1},
    "gateway": {"num_cpus": 0.1},
}


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).resolve().parents[2]
