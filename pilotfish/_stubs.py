"""Typed doors to the generated stubs, whose constructors carry no annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from pilotfish.v1 import control_pb2_grpc, inference_pb2_grpc
from pilotfish.v1.control_pb2_grpc import ControlStub
from pilotfish.v1.inference_pb2_grpc import InferenceStub

inference_stub = cast("Callable[[Any], InferenceStub]", inference_pb2_grpc.InferenceStub)
control_stub = cast("Callable[[Any], ControlStub]", control_pb2_grpc.ControlStub)
