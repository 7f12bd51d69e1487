"""The generated servicers raise "not implemented" for a method that nobody overrides. Theirs is
the generator's text; this shows that no call can reach it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from actors.engine.servicer import VerificationServicer
from actors.exchange.server import DraftingServicer
from cluster.gateway.grpc_door import Door
from cluster.gateway.grpc_service import ControlMethods, InferenceMethods
from pilotfish.v1 import control_pb2, exchange_pb2, inference_pb2


def methods(module: Any, service: str) -> list[str]:
    return [method.name for method in module.DESCRIPTOR.services_by_name[service].methods]


@pytest.mark.parametrize(
    ("service", "implementation"),
    [("Verification", VerificationServicer), ("Drafting", DraftingServicer)],
)
def test_the_data_planes_calls_are_all_implemented(service: str, implementation: type) -> None:
    names = methods(exchange_pb2, service)
    assert names
    assert set(names) <= vars(implementation).keys()


@pytest.mark.parametrize(
    ("module", "service", "implementation"),
    [(inference_pb2, "Inference", InferenceMethods), (control_pb2, "Control", ControlMethods)],
)
def test_the_public_calls_are_all_implemented(
    module: Any, service: str, implementation: Any
) -> None:
    handler = implementation(None).handlers(Door(None))
    for name in methods(module, service):
        call = SimpleNamespace(method=f"/pilotfish.v1.{service}/{name}")
        assert handler.service(call) is not None, name
    missing = SimpleNamespace(method=f"/pilotfish.v1.{service}/Nothing")
    assert handler.service(missing) is None
