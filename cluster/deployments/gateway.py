"""The gateway replica: HTTP through Serve's proxy, gRPC on a server of its own, one core behind.

It is ready when a verifier answers and both doors are open.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from cluster import telemetry
from cluster.config import AppArgs
from cluster.deployments.addresses import host_port
from cluster.deployments.engine_options import drafters, served_model_name
from cluster.deployments.router import ServeRouter
from cluster.deployments.speaking import of_the_speaker
from cluster.gateway.errors import NoPolicy
from pilotfish.v1 import control_pb2 as pb

if TYPE_CHECKING:
    from fastapi import FastAPI

    from cluster.deployments.doors import Doors

logger = logging.getLogger(__name__)

STATUS_TIMEOUT_S = 5.0
SNAPSHOT_TIMEOUT_S = 1.0  # less than who looks at the live page waits for its figures
POLL_S = 0.2


@serve.ingress()
class Gateway:
    """Both doors over one backend. Drafters are arguments only so that Serve deploys them."""

    def __init__(
        self,
        args: AppArgs,
        verifiers: DeploymentHandle[Any],
        policy: DeploymentHandle[Any],
        *drafters: DeploymentHandle[Any],
    ) -> None:
        self._args = args
        self._verifiers = verifiers
        self._policy = policy
        self._doors: Doors | None = None
        self._name = f"gateway-{serve.get_replica_context().replica_id.unique_id}"
        self._provider = telemetry.setup(
            "pilotfish-gateway", args.otlp_traces_endpoint, {"pilotfish.gateway": self._name}
        )

    async def __serve_build_asgi_app__(self) -> FastAPI:
        """Serve calls it once, after the constructor."""
        from cluster.deployments.doors import open_doors

        self._doors = await open_doors(
            self._args,
            ServeRouter(self._verifiers),
            gateway=self._name,
            status=self.status,
            figures=self.figures,
            tracer_provider=self._provider,
        )
        return self._doors.app

    async def endpoints(self) -> dict[str, str]:
        """Where clients reach this replica beside Serve's HTTP proxy."""
        port = self._doors.grpc.port if self._doors is not None else 0
        return {
            "grpc": host_port(self._args.gateway.grpc_host, port),
            "model": served_model_name(self._args),
        }

    async def placement(self) -> dict[str, Any]:
        """Where this replica is."""
        return {"gateway": self._name, "pid": os.getpid()}

    async def status(self) -> pb.Status:
        """The policy's snapshot and what each verifier says now. Raises NoPolicy."""
        return _status(*await asyncio.gather(self._snapshot(STATUS_TIMEOUT_S), self._reports()))

    async def figures(self) -> pb.Status:
        """The same for metrics and the live page, which want what verifiers say also while the
        policy is down; there is no snapshot then."""

        async def snapshot() -> bytes:
            try:
                return await self._snapshot(SNAPSHOT_TIMEOUT_S)
            except Exception as error:
                logger.info("figures without the policy: %r", error)
                return b""

        return _status(*await asyncio.gather(snapshot(), self._reports()))

    async def _reports(self) -> list[Any]:
        """Of each verifier, or the exception in its place."""
        reports: list[Any] = await self._verifiers.broadcast("status").results_async(
            timeout_s=STATUS_TIMEOUT_S, return_exceptions=True
        )
        return reports

    async def wait_for_drafters(self, timeout_s: float) -> bool:
        """Until every verifier has a link to every drafter; False when that takes too long."""
        wanted = drafters(self._args).first
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    with suppress(NoPolicy):
                        if _linked(await self.status(), wanted):
                            return True
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return False

    async def _snapshot(self, timeout_s: float) -> bytes:
        """Of the policy actor that speaks."""
        try:
            return await of_the_speaker(self._policy.status.remote, timeout_s)
        except TimeoutError:
            raise NoPolicy(f"no policy actor answered within {timeout_s:.0f} s") from None

    async def __del__(self) -> None:
        if self._doors is not None:
            await self._doors.close()
        telemetry.shutdown(self._provider)


def _status(snapshot: bytes, reports: list[Any]) -> pb.Status:
    """The policy's answer, with what verifiers say now in place of what they last told it."""
    status = pb.Status.FromString(snapshot)
    del status.verifiers[:]
    fresh = [pb.VerifierStatus.FromString(r) for r in reports if isinstance(r, bytes)]
    status.verifiers.extend(sorted(fresh, key=lambda report: report.verifier))
    return status


def _linked(status: pb.Status, drafters: int) -> bool:
    links = [sum(link.up for link in verifier.links) for verifier in status.verifiers]
    return bool(links) and min(links) >= drafters
