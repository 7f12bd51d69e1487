"""Models, tokens, health, version and metrics."""

from __future__ import annotations

import asyncio
import logging
import time
from importlib.metadata import PackageNotFoundError, version

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cluster.gateway.answers import Json
from cluster.gateway.body import read_json
from cluster.gateway.engine_figures import StatusSource
from cluster.gateway.errors import GatewayError, InvalidRequest
from cluster.gateway.metrics import CONTENT_TYPE
from cluster.gateway.requests import parse_chat, parse_detokenize, parse_tokenize
from cluster.gateway.resolve import resolve_model
from cluster.gateway.service import GenerationService
from cluster.gateway.types import BackendHealth, ModelInfo

logger = logging.getLogger(__name__)

DISTRIBUTION = "pilotfish"


class InfoRoutes:
    def __init__(self, service: GenerationService, status: StatusSource | None = None) -> None:
        self._service = service
        self._status = status
        self._created = int(time.time())

    async def models(self) -> Response:
        info = await self._service.backend.info()
        name = self._service.settings.served_model_name or info.id
        return JSONResponse({"object": "list", "data": [self._card(name, info)]})

    async def model(self, model: str) -> Response:
        info = await self._service.backend.info()
        name = resolve_model(model, info, self._service.settings.served_model_name)
        return JSONResponse(self._card(name, info))

    async def tokenize(self, request: Request) -> Response:
        """vLLM's: {prompt} or {messages} -> {count, max_model_len, tokens, token_strs}."""
        document = await read_json(request.stream(), self._service.settings.max_body_bytes)
        body = parse_tokenize(document)
        info = await self._service.backend.info()
        resolve_model(body.model, info, self._service.settings.served_model_name)
        codec = self._service.codec
        if body.prompt is not None:
            special = body.add_special_tokens is not False
            ids = await codec.encode(body.prompt, add_special_tokens=special)
        else:
            chat = parse_chat({"messages": body.messages})
            ids = await codec.encode_chat(
                [message.for_template() for message in chat.messages],
                add_generation_prompt=body.add_generation_prompt is not False,
            )
        strings = [codec.token_string(i) for i in ids] if body.return_token_strs else None
        return JSONResponse(
            {
                "count": len(ids),
                "max_model_len": info.max_model_len,
                "tokens": ids,
                "token_strs": strings,
            }
        )

    async def detokenize(self, request: Request) -> Response:
        """vLLM's: {tokens} -> {prompt}."""
        document = await read_json(request.stream(), self._service.settings.max_body_bytes)
        body = parse_detokenize(document)
        info = await self._service.backend.info()
        resolve_model(body.model, info, self._service.settings.served_model_name)
        if body.tokens and not 0 <= min(body.tokens) <= max(body.tokens) < info.vocab_size:
            raise InvalidRequest(
                f"tokens holds an id outside 0 … {info.vocab_size - 1}.", param="tokens"
            )
        return JSONResponse({"prompt": self._service.codec.decode(body.tokens)})

    async def health(self) -> Response:
        """200 while a verifier can be reached; what drafters do is told, and changes nothing."""
        try:
            async with asyncio.timeout(self._service.settings.health_timeout_s):
                health = await self._service.health()
        except (GatewayError, TimeoutError) as error:
            reason = str(error) or "no verifier answered in time"
            return JSONResponse({"status": "unavailable", "reason": reason}, status_code=503)
        if not health.verifiers:
            reason = "no verifier is reachable"
            return JSONResponse({"status": "unavailable", "reason": reason}, status_code=503)
        return JSONResponse(_healthy(health))

    async def version(self) -> Response:
        try:
            return JSONResponse({"version": version(DISTRIBUTION)})
        except PackageNotFoundError:  # run from a source tree that was never installed
            return JSONResponse({"version": "0+source"})

    async def metrics(self) -> Response:
        """Engines that cannot be asked now keep the figures they last gave."""
        if self._status is not None:
            try:
                async with asyncio.timeout(self._service.settings.health_timeout_s):
                    self._service.metrics.engines.update(await self._status())
            except Exception as error:
                logger.info("no figures of the engines: %r", error)
        return Response(self._service.metrics.render(), headers={"content-type": CONTENT_TYPE})

    def _card(self, name: str, info: ModelInfo) -> Json:
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "pilotfish",
            "root": info.id,
            "parent": None,
            "max_model_len": info.max_model_len,
            "permission": [],
        }


def _healthy(health: BackendHealth) -> Json:
    up = sum(drafter.up for drafter in health.drafters)
    return {
        "status": "ok",
        "verifiers": health.verifiers,
        "drafting": "none" if not health.drafters else "up" if up else "down",
        "drafters": [
            {"drafter": d.drafter, "mechanism": d.mechanism, "up": d.up} for d in health.drafters
        ],
    }
