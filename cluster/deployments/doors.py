"""A gateway's inside: tokenizer, backend, and both doors over one service.

Imported by the replica alone; whoever only builds the application stays light.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from opentelemetry.sdk.trace import TracerProvider

from actors.exchange.compat import tokenizer_digest
from cluster.cohort_rules import cohorts_of
from cluster.config import AppArgs
from cluster.deployments.engine_options import served_model_name
from cluster.gateway.engine_figures import StatusSource
from cluster.gateway.errors import GatewayError
from cluster.gateway.grpc_server import GrpcSettings, RunningServer, start_grpc
from cluster.gateway.http import create_app
from cluster.gateway.service import GenerationService
from cluster.gateway.settings import GatewaySettings
from cluster.gateway.verifiers import Router, VerifierBackend
from cluster.tls import TlsFiles

logger = logging.getLogger(__name__)

GRPC_GRACE_S = 5.0
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Doors:
    """What listens, until `close`."""

    app: FastAPI
    grpc: RunningServer
    backend: VerifierBackend

    async def close(self) -> None:
        """Running calls have a moment to finish, then their requests are aborted."""
        await self.grpc.stop(GRPC_GRACE_S)
        await self.backend.close()


async def open_doors(
    args: AppArgs,
    router: Router,
    *,
    gateway: str,
    status: StatusSource,
    figures: StatusSource,
    tracer_provider: TracerProvider | None,
) -> Doors:
    """Wait for a verifier, then listen. figures: the status for those who can do without the
    policy's part of it. Raises GrpcStartError, TlsError, ModelStoreError."""
    tokenizer = await asyncio.to_thread(_load_tokenizer, args)
    backend = VerifierBackend(
        router,
        gateway=gateway,
        tokenizer_digest=tokenizer_digest(tokenizer.get_vocab()),
        takeover_timeout_s=args.gateway.takeover_timeout_s,
    )
    await _until_a_verifier_answers(backend)
    settings = _settings(args)
    service = GenerationService(backend, tokenizer, settings, tracer_provider=tracer_provider)
    grpc = await start_grpc(service, _grpc_settings(args), status)
    app = create_app(backend, tokenizer, settings, service=service, status=figures)
    return Doors(app, grpc, backend)


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


def _load_tokenizer(args: AppArgs) -> Any:
    from cluster.gateway.loading import load_tokenizer
    from cluster.models.resolve import resolve

    if args.tokenizer:
        return load_tokenizer(str(resolve(args.tokenizer)))
    return load_tokenizer(str(resolve(args.model, args.revision)), args.revision)


def _settings(args: AppArgs) -> GatewaySettings:
    return GatewaySettings(
        served_model_name=served_model_name(args),
        num_speculative_tokens=args.num_speculative_tokens,
        api_key_env=args.gateway.api_key_env,
        echo_request_id=False,  # Serve's proxy adds it
        cohorts=cohorts_of(args.cohorts),
    )


def _grpc_settings(args: AppArgs) -> GrpcSettings:
    gateway = args.gateway
    tls = None
    if gateway.tls_certificate is not None and gateway.tls_key is not None:
        tls = TlsFiles(gateway.tls_certificate, gateway.tls_key)
    return GrpcSettings(host=gateway.grpc_host, port=gateway.grpc_port, tls=tls)
