"""The gateway replica: HTTP through Serve's proxy, gRPC on a server of its own, one core behind.

It is ready when a verifier answers and both doors are open.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from actors.exchange.compat import tokenizer_digest
from cluster import telemetry
from cluster.config import AppArgs
from cluster.deployments.addresses import host_port
from cluster.deployments.engine_options import drafter_replicas, served_model_name
from cluster.deployments.router import ServeRouter
from cluster.gateway.errors import GatewayError
from cluster.gateway.grpc_server import GrpcSettings, RunningServer, start_grpc
from cluster.gateway.http import create_app
from cluster.gateway.service import GenerationService
from cluster.gateway.settings import GatewaySettings
from cluster.gateway.verifiers import VerifierBackend
from cluster.tls import TlsFiles
from pilotfish.v1 import control_pb2 as pb

logger = logging.getLogger(__name__)

GRPC_GRACE_S = 2.0
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
        self._backend: VerifierBackend | None = None
        self._grpc: RunningServer | None = None
        self._name = f"gateway-{serve.get_replica_context().replica_id.unique_id}"
        self._provider = telemetry.setup(
            "pilotfish-gateway", args.otlp_traces_endpoint, {"pilotfish.gateway": self._name}
        )

    async def __serve_build_asgi_app__(self) -> FastAPI:
        """Serve calls it once after the constructor: wait for a verifier, open both doors."""
        args = self._args
        tokenizer = await asyncio.to_thread(_load_tokenizer, args)
        backend = self._backend = VerifierBackend(
            ServeRouter(self._verifiers),
            gateway=self._name,
            tokenizer_digest=tokenizer_digest(tokenizer.get_vocab()),
            takeover_timeout_s=args.gateway.takeover_timeout_s,
        )
        await _until_a_verifier_answers(backend)
        settings = _settings(args)
        service = GenerationService(backend, tokenizer, settings, tracer_provider=self._provider)
        self._grpc = await start_grpc(service, _grpc_settings(args), self.status)
        return create_app(backend, tokenizer, settings, service=service)

    async def endpoints(self) -> dict[str, str]:
        """Where clients reach this replica beside Serve's HTTP proxy."""
        port = self._grpc.port if self._grpc is not None else 0
        return {
            "grpc": host_port(self._args.gateway.grpc_host, port),
            "model": served_model_name(self._args),
            "pid": str(os.getpid()),
        }

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
        wanted = drafter_replicas(self._args)
        try:
            async with asyncio.timeout(timeout_s):
                while not _linked(await self.status(), wanted):
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return False
        return True

    async def __del__(self) -> None:
        if self._grpc is not None:
            await self._grpc.stop(GRPC_GRACE_S)
        if self._backend is not None:
            await self._backend.close()
        telemetry.shutdown(self._provider)


async def _until_a_verifier_answers(backend: VerifierBackend) -> None:
    """Serve starts deployments together, and loading a target takes longest."""
    while True:
        try:
            await backend.info()
        except GatewayError as error:
            logger.info("waiting for a verifier: %s", error)
            await asyncio.sleep(POLL_S)
        else:
            return


def _linked(status: pb.Status, drafters: int) -> bool:
    links = [sum(link.up for link in verifier.links) for verifier in status.verifiers]
    return bool(links) and min(links) >= drafters


def _load_tokenizer(args: AppArgs) -> Any:
    from transformers import AutoTokenizer

    from cluster.models.resolve import resolve

    path = resolve(args.tokenizer or args.model, args.revision if not args.tokenizer else None)
    return AutoTokenizer.from_pretrained(str(path), revision=args.revision or "main")


def _settings(args: AppArgs) -> GatewaySettings:
    speculative = args.speculative_config
    return GatewaySettings(
        served_model_name=served_model_name(args),
        num_speculative_tokens=0 if speculative is None else speculative.num_speculative_tokens,
        api_key_env=args.gateway.api_key_env,
    )


def _grpc_settings(args: AppArgs) -> GrpcSettings:
    gateway = args.gateway
    tls = None
    if gateway.tls_certificate is not None and gateway.tls_key is not None:
        tls = TlsFiles(gateway.tls_certificate, gateway.tls_key)
    return GrpcSettings(host=gateway.grpc_host, port=gateway.grpc_port, tls=tls)
