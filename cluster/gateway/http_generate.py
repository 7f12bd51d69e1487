"""POST /v1/chat/completions and /v1/completions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cluster.gateway.answers import Answer, AnswerOptions
from cluster.gateway.body import read_json
from cluster.gateway.chat import ChatAnswer
from cluster.gateway.cohort import HEADER, declared, shape_of
from cluster.gateway.completions import CompletionAnswer
from cluster.gateway.disconnect import ClientGone, while_connected
from cluster.gateway.failures import CLIENT_CLOSED_REQUEST
from cluster.gateway.prompts import chat_ids, text_ids
from cluster.gateway.requests import (
    ChatRequest,
    CompletionRequest,
    parse_chat,
    parse_completion,
)
from cluster.gateway.resolve import (
    COMPLETION_MAX_TOKENS,
    resolve_draft_len,
    resolve_model,
    resolve_prompt,
    resolve_request_id,
    resolve_sampling,
    resolve_stop,
)
from cluster.gateway.service import GenerationService
from cluster.gateway.sharing import (
    TENANT_HEADER,
    resolve_cache_salt,
    resolve_priority,
    resolve_tenant,
)
from cluster.gateway.sse import EventStream
from cluster.gateway.types import GenerateSpec, ModelInfo, Trace
from policies.cohorts import Traits


class GenerateRoutes:
    def __init__(self, service: GenerationService) -> None:
        self._service = service

    async def chat(self, request: Request) -> Response:
        document = await self._document(request)
        body = parse_chat(document)
        info = await self._service.backend.info()
        model = resolve_model(body.model, info, self._service.settings.served_model_name)
        ids = await chat_ids(
            [message.for_template() for message in body.messages],
            self._service.codec,
            info,
            add_generation_prompt=body.add_generation_prompt is not False,
        )
        prompt_ids = resolve_prompt(ids, info, "messages")
        cohort = self._cohort(request, body, document, model, len(prompt_ids))
        spec = self._spec(request, body, prompt_ids, info, cohort)
        top = (body.top_logprobs or 0) if body.logprobs else None
        answer = ChatAnswer(
            spec, self._service.codec, model, int(time.time()), self._options(body, top)
        )
        return await self._respond(request, answer, bool(body.stream))

    async def completions(self, request: Request) -> Response:
        document = await self._document(request)
        body = parse_completion(document)
        info = await self._service.backend.info()
        model = resolve_model(body.model, info, self._service.settings.served_model_name)
        prompt = body.one_prompt()
        ids = (
            prompt
            if isinstance(prompt, list)
            else await text_ids(prompt, self._service.codec, info)
        )
        prompt_ids = resolve_prompt(ids, info)
        cohort = self._cohort(request, body, document, model, len(prompt_ids))
        spec = self._spec(
            request, body, prompt_ids, info, cohort, default_max_tokens=COMPLETION_MAX_TOKENS
        )
        answer = CompletionAnswer(
            spec, self._service.codec, model, int(time.time()), self._options(body, body.logprobs)
        )
        return await self._respond(request, answer, bool(body.stream))

    async def _document(self, request: Request) -> dict[str, object]:
        return await read_json(request.stream(), self._service.settings.max_body_bytes)

    def _cohort(
        self,
        request: Request,
        body: ChatRequest | CompletionRequest,
        document: Mapping[str, Any],
        model: str,
        prompt_tokens: int,
    ) -> str:
        structured, tools = shape_of(document)
        traits = Traits(
            model=model,
            tenant=resolve_tenant(request.headers.get(TENANT_HEADER)),
            task=declared(body.metadata, request.headers.get(HEADER)),
            structured=structured,
            tools=tools,
            prompt_tokens=prompt_tokens,
        )
        return self._service.settings.cohorts.of(traits)

    def _spec(
        self,
        request: Request,
        body: ChatRequest | CompletionRequest,
        prompt_ids: tuple[int, ...],
        info: ModelInfo,
        cohort: str,
        default_max_tokens: int | None = None,
    ) -> GenerateSpec:
        sampling = resolve_sampling(
            body.sampling_fields(), info, len(prompt_ids), default_max_tokens=default_max_tokens
        )
        header = request.headers
        request_id = resolve_request_id(body.request_id or request.state.request_id)
        request.state.request_id = request_id
        return GenerateSpec(
            request_id=request_id,
            prompt_ids=prompt_ids,
            sampling=sampling,
            stop=resolve_stop(body.stop),
            include_stop_str_in_output=bool(body.include_stop_str_in_output),
            skip_special_tokens=body.skip_special_tokens is not False,
            cohort=cohort,
            tenant=resolve_tenant(header.get(TENANT_HEADER)),
            priority=resolve_priority(body.priority),
            cache_salt=resolve_cache_salt(body.cache_salt),
            max_draft_len=resolve_draft_len(body.speculative.n_max if body.speculative else None),
            trace=Trace(header.get("traceparent", ""), header.get("tracestate", "")),
        )

    def _options(
        self, body: ChatRequest | CompletionRequest, top_logprobs: int | None
    ) -> AnswerOptions:
        stream, settings = body.options(), self._service.settings
        return AnswerOptions(
            include_usage=bool(stream.include_usage),
            continuous_usage=bool(stream.continuous_usage_stats),
            token_ids=bool(body.return_token_ids),
            spec_details=bool(body.return_spec_tokens_details),
            top_logprobs=top_logprobs,
            spec_metrics=settings.spec_metrics,
            num_speculative_tokens=settings.num_speculative_tokens,
        )

    async def _respond(self, request: Request, answer: Answer, stream: bool) -> Response:
        deltas = self._service.stream(answer.spec)
        if stream:
            return EventStream(answer.events(deltas), self._service.settings.write_timeout_s)
        try:
            return JSONResponse(await while_connected(request.receive, answer.body(deltas)))
        except ClientGone:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
