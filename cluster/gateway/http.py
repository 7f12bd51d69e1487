"""The HTTP door: an OpenAI-compatible FastAPI app over a `Backend`.

`create_app` gives a plain app: it runs under Ray Serve's ingress, any ASGI server, or in a test.
"""

from __future__ import annotations

from fastapi import Depends, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from cluster.gateway.auth import key_dependency
from cluster.gateway.engine_figures import StatusSource
from cluster.gateway.errors import GatewayError
from cluster.gateway.failures import client_gone, gateway_error, http_error, unexpected_error
from cluster.gateway.http_generate import GenerateRoutes
from cluster.gateway.http_info import InfoRoutes
from cluster.gateway.live import LiveRoutes
from cluster.gateway.request_id import RequestId
from cluster.gateway.service import GenerationService
from cluster.gateway.settings import GatewaySettings
from cluster.gateway.text import ChatTokenizer
from cluster.gateway.types import Backend


def create_app(
    backend: Backend,
    tokenizer: ChatTokenizer,
    settings: GatewaySettings,
    *,
    service: GenerationService | None = None,
    status: StatusSource | None = None,
) -> FastAPI:
    """`service`: the one that another door of the same process uses, so that both share ids in
    flight and metrics; by default the app has its own. status: what /metrics asks for the figures
    of engines."""
    service = service or GenerationService(backend, tokenizer, settings)
    generation, info = GenerateRoutes(service), InfoRoutes(service, status)
    live = LiveRoutes(service, status)
    app = FastAPI(title="Pilotfish", docs_url=None, redoc_url=None, openapi_url=None)
    key = [Depends(key_dependency(settings.api_key_env))]
    for path, post in (
        ("/v1/chat/completions", generation.chat),
        ("/v1/completions", generation.completions),
        ("/tokenize", info.tokenize),
        ("/detokenize", info.detokenize),
    ):
        app.add_api_route(path, post, methods=["POST"], dependencies=key, response_model=None)
    for path, get in (("/v1/models", info.models), ("/v1/models/{model:path}", info.model)):
        app.add_api_route(path, get, methods=["GET"], dependencies=key, response_model=None)
    for path, probe in (
        ("/health", info.health),
        ("/ping", info.health),
        ("/version", info.version),
        ("/metrics", info.metrics),
        ("/live", live.page),
        ("/live/state", live.state),
    ):
        app.add_api_route(path, probe, methods=["GET"], response_model=None)
    app.add_exception_handler(GatewayError, gateway_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, unexpected_error)
    app.add_exception_handler(ClientDisconnect, client_gone)
    app.add_middleware(RequestId, echo=settings.echo_request_id)
    return app
