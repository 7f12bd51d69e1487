"""The public methods: `Inference` and `Control`, over the gateway's one core."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import grpc

from cluster.gateway.engine_figures import StatusSource
from cluster.gateway.errors import DeadlineExceeded, InvalidRequest, NoVerifier
from cluster.gateway.grpc_answers import WholeAnswer, delta_message, shows_nothing
from cluster.gateway.grpc_door import Context, Door, metadata_of
from cluster.gateway.grpc_requests import conversation, spec_of
from cluster.gateway.resolve import resolve_model
from cluster.gateway.service import GenerationService
from cluster.gateway.sharing import TENANT_HEADER
from cluster.gateway.stall import Stalled, StallLimit
from cluster.gateway.types import GenerateSpec, Trace
from pilotfish.v1 import control_pb2
from pilotfish.v1 import inference_pb2 as pb

INFERENCE = pb.DESCRIPTOR.services_by_name["Inference"].full_name
CONTROL = control_pb2.DESCRIPTOR.services_by_name["Control"].full_name


class InferenceMethods:
    """Leaving a call early, by deadline, cancellation or a lost client, aborts its request."""

    def __init__(self, service: GenerationService) -> None:
        self._service = service

    def handlers(self, door: Door) -> grpc.GenericRpcHandler[Any, Any]:
        return grpc.method_handlers_generic_handler(
            INFERENCE,
            {
                "Generate": door.unary(pb.GenerateRequest, self.generate),
                "GenerateStream": door.streaming(pb.GenerateRequest, self.generate_stream),
                "Tokenize": door.unary(pb.TokenizeRequest, self.tokenize),
                "Models": door.unary(pb.ModelsRequest, self.models),
            },
        )

    async def generate(self, request: pb.GenerateRequest, context: Context) -> pb.GenerateResponse:
        spec, model = await self._validated(request, context)
        answer = WholeAnswer(spec.request_id, model, self._service.codec)
        async with aclosing(self._service.stream(spec)) as deltas:
            async for delta in deltas:
                answer.add(delta)
        return answer.message

    async def generate_stream(self, request: pb.GenerateRequest, context: Context) -> None:
        spec, _ = await self._validated(request, context)
        limit = self._service.settings.write_timeout_s
        try:
            async with (
                StallLimit(limit) as stall,
                aclosing(self._service.stream(spec)) as deltas,
            ):
                async for delta in deltas:
                    if not shows_nothing(delta):
                        message = delta_message(delta, spec.request_id, self._service.codec)
                        stall.begin()  # waits for the client's flow control, but not for ever
                        await context.write(message)
                        stall.end()
        except Stalled:
            raise DeadlineExceeded(f"The client took nothing for {limit:g} s.") from None

    async def tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        await self._model(request.model)
        codec = self._service.codec
        match request.WhichOneof("input"):
            case "text":
                return pb.TokenizeResponse(ids=await codec.encode(request.text))
            case "chat":
                ids = await codec.encode_chat(conversation(request.chat))
                return pb.TokenizeResponse(ids=ids)
            case _:
                raise InvalidRequest("One of text and chat is required.", param="text")

    async def models(self, request: pb.ModelsRequest, context: Context) -> pb.ModelsResponse:
        info = await self._service.backend.info()
        name = self._service.settings.served_model_name or info.id
        return pb.ModelsResponse(
            models=[pb.Model(id=name, max_model_len=info.max_model_len, dtype=info.dtype)]
        )

    async def _validated(
        self, request: pb.GenerateRequest, context: Context
    ) -> tuple[GenerateSpec, str]:
        info = await self._service.backend.info()
        model = resolve_model(request.model, info, self._service.settings.served_model_name)
        given = metadata_of(context)
        trace = Trace(given.get("traceparent", ""), given.get("tracestate", ""))
        spec = await spec_of(
            request,
            self._service.codec,
            info,
            trace,
            model=model,
            tenant=given.get(TENANT_HEADER, ""),
            cohorts=self._service.settings.cohorts,
        )
        return spec, model

    async def _model(self, name: str) -> str:
        info = await self._service.backend.info()
        return resolve_model(name, info, self._service.settings.served_model_name)


class ControlMethods:
    """Read-only administration. source None: this gateway has nobody to ask."""

    def __init__(self, source: StatusSource | None) -> None:
        self._source = source

    def handlers(self, door: Door) -> grpc.GenericRpcHandler[Any, Any]:
        return grpc.method_handlers_generic_handler(
            CONTROL, {"GetStatus": door.unary(control_pb2.StatusRequest, self.get_status)}
        )

    async def get_status(
        self, request: control_pb2.StatusRequest, context: Context
    ) -> control_pb2.Status:
        if self._source is None:
            raise NoVerifier("This gateway has no status to give.", retry_after_s=None)
        return await self._source()
