"""The gateway replica: HTTP through Serve's proxy, gRPC on a server of its own, one core behind.

It is ready when a verifier answers and both doors are open.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from ray import serve
from ray.serve.handle import DeploymentHandle

from cluster import telemetry
from cluster.config import AppArgs
from cluster.deployments.addresses import host_port
from cluster.deployments.engine_options import drafters, served_model_name
from cluster.deployments.router import ServeRouter
from pilotfish.v1 import control_pb2 as pb

if TYPE_CHECKING:
    from fastapi import FastAPI

    from cluster.deployments.doors import Doors

STATUS_TIMEOUT_S = 5.0
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
        """The policy's snapshot and what each verifier says now."""
        snapshot, reports = await asyncio.gather(
            self._policy.status.remote(),
            self._verifiers.broadcast("status").results_async(
                timeout_s=STATUS_TIMEOUT_S, return_exceptions=True
            ),
        )
        status = pb.Status.FromString(snapshot)
        del status.verifiers[:]
        fresh = [pb.VerifierStatus.FromString(r) for r in reports if isinstance(r, bytes)]
        status.verifiers.extend(sorted(fresh, key=lambda report: report.verifier))
        return status

    async def wait_for_drafters(self, timeout_s: float) -> bool:
        """Until every verifier has a link to every drafter; False when that takes too long."""
        wanted = drafters(self._args).first
        try:
            async with asyncio.timeout(timeout_s):
                while not _linked(await self.status(), wanted):
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return False
        return True

    async def __del__(self) -> None:
        if self._doors is not None:
            await self._doors.close()
        telemetry.shutdown(self._provider)


def _linked(status: pb.Status, drafters: int) -> bool:
    links = [sum(link.up for link in verifier.links) for verifier in status.verifiers]
    return bool(links) and min(links) >= drafters
