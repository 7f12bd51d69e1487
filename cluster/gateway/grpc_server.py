"""The public gRPC server: a grpc.aio server of the gateway's own, beside Serve's HTTP proxy.

Serve's gRPC proxy has no TLS and binds every interface; this one speaks TLS from files, binds
loopback unless told otherwise, and takes its port for itself alone.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any, cast

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from cluster.gateway.engine_figures import StatusSource
from cluster.gateway.errors import GatewayError
from cluster.gateway.grpc_door import Door
from cluster.gateway.grpc_service import CONTROL, INFERENCE, ControlMethods, InferenceMethods
from cluster.gateway.service import GenerationService
from cluster.gateway.types import Backend
from cluster.tls import TlsFiles, server_credentials

_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class GrpcStartError(Exception):
    """The server cannot listen; says where and why."""


@dataclass(frozen=True, slots=True)
class GrpcSettings:
    """port 0: any free one. tls None: plain text. Sizes in bytes, times in seconds.

    max_concurrent_rpcs: beyond it calls are refused with RESOURCE_EXHAUSTED.
    health_period_s: how often the health service looks whether a verifier is reachable.
    """

    host: str = "127.0.0.1"
    port: int = 0
    tls: TlsFiles | None = None
    max_message_bytes: int = 2 << 20
    max_concurrent_rpcs: int = 1024
    health_period_s: float = 2.0

    def options(self) -> list[tuple[str, int]]:
        """A port for one process only; dead peers are found, lively ones may ping."""
        return [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self.max_message_bytes),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ]


class RunningServer:
    """A server that listens. port: the bound one."""

    def __init__(
        self, server: grpc.aio.Server, port: int, servicer: Any, watch: asyncio.Task[None]
    ) -> None:
        self.port = port
        self._server = server
        self._health = servicer
        self._watch = watch

    async def stop(self, grace: float) -> None:
        """Takes no new calls; those running have `grace` seconds, then they are cancelled and
        their requests aborted."""
        self._watch.cancel()
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)
        await asyncio.gather(self._watch, return_exceptions=True)


async def start_grpc(
    service: GenerationService, settings: GrpcSettings, status: StatusSource | None = None
) -> RunningServer:
    """Serve `Inference`, `Control`, health and reflection. The API key is the service's.

    Raises GrpcStartError when the port is taken or the address is not ours, TlsError for a
    certificate that cannot be used.
    """
    door = Door(os.environ.get(service.settings.api_key_env) or None)
    server = grpc.aio.server(
        options=settings.options(), maximum_concurrent_rpcs=settings.max_concurrent_rpcs
    )
    server.add_generic_rpc_handlers(
        (InferenceMethods(service).handlers(door), ControlMethods(status).handlers(door))
    )
    servicer = cast(Any, health).aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    reflection.enable_server_reflection(
        (INFERENCE, CONTROL, _HEALTH, reflection.SERVICE_NAME), server
    )
    port = _bind(server, settings)
    await _look(servicer, service.backend)
    await server.start()
    watch = asyncio.create_task(_watch(servicer, service.backend, settings.health_period_s))
    return RunningServer(server, port, servicer, watch)


def _bind(server: grpc.aio.Server, settings: GrpcSettings) -> int:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{settings.port}"
    try:
        if settings.tls is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, server_credentials(settings.tls))
    except RuntimeError as error:
        raise GrpcStartError(
            f"cannot listen on {address}: the port is in use or the address is not this machine's"
        ) from error
    if port == 0 or settings.port not in (0, port):
        raise GrpcStartError(f"cannot listen on {address}")
    return port


async def _watch(servicer: Any, backend: Backend, period_s: float) -> None:
    while True:
        await asyncio.sleep(period_s)
        await _look(servicer, backend)


async def _look(servicer: Any, backend: Backend) -> None:
    """Serving means that a verifier can be reached."""
    try:
        await backend.info()
        status = health_pb2.HealthCheckResponse.SERVING
    except GatewayError:
        status = health_pb2.HealthCheckResponse.NOT_SERVING
    for name in ("", INFERENCE):
        await servicer.set(name, status)
