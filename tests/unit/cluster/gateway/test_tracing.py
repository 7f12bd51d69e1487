from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from cluster.gateway.errors import RequestFailed
from cluster.gateway.service import GenerationService
from cluster.gateway.settings import GatewaySettings
from cluster.gateway.types import Trace
from tests.unit.cluster.gateway.builders import (
    FakeChatTokenizer,
    ScriptedBackend,
    make_char_tokenizer,
    make_chunks,
    make_spec,
    successors,
)

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = Trace(f"00-{TRACE_ID}-b7ad6b7169203331-01", "vendor=1")


def make_traced(backend: ScriptedBackend) -> tuple[GenerationService, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tokenizer = FakeChatTokenizer(make_char_tokenizer())
    settings = GatewaySettings(served_model_name="alias")
    return GenerationService(backend, tokenizer, settings, tracer_provider=provider), exporter


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


async def test_a_request_is_one_server_span_under_the_clients_trace() -> None:
    backend = ScriptedBackend(lambda s: make_chunks(successors(9), 3))
    service, exporter = make_traced(backend)
    async for _ in service.stream(make_spec(trace=PARENT, request_id="r")):
        pass
    span = only(exporter)
    assert (span.name, span.kind) == ("llm_request", SpanKind.SERVER)
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == TRACE_ID
    assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
    forwarded = backend.specs[0].trace
    assert forwarded.traceparent == f"00-{TRACE_ID}-{span.context.span_id:016x}-01"
    assert forwarded.tracestate == "vendor=1"
    attributes = dict(span.attributes or {})
    assert attributes["gen_ai.request.id"] == "r"
    assert attributes["gen_ai.response.model"] == "alias"
    assert attributes["gen_ai.usage.prompt_tokens"] == attributes["gen_ai.usage.input_tokens"] == 1
    assert attributes["gen_ai.usage.completion_tokens"] == 9
    assert attributes["gen_ai.usage.output_tokens"] == 9
    assert attributes["gen_ai.latency.time_in_queue"] == 0.25
    assert attributes["gen_ai.response.finish_reasons"] == ("length",)
    assert attributes["pilotfish.accepted_tokens"] == 6
    assert attributes["pilotfish.max_drafted"] == 3
    assert attributes["pilotfish.mechanisms"] == ("suffix",)


async def test_a_failed_request_ends_its_span_with_the_error() -> None:
    service, exporter = make_traced(ScriptedBackend(lambda s: [], failure=RequestFailed("lost")))
    with pytest.raises(RequestFailed):
        async for _ in service.stream(make_spec()):
            pass
    assert only(exporter).status.status_code == StatusCode.ERROR


async def test_a_closed_request_ends_its_span_as_aborted() -> None:
    service, exporter = make_traced(ScriptedBackend())
    deltas = service.stream(make_spec())
    await anext(deltas)
    await deltas.aclose()
    span = only(exporter)
    assert [event.name for event in span.events] == ["aborted"]
    assert span.status.status_code == StatusCode.UNSET


async def test_without_an_sdk_the_clients_context_is_handed_on_as_it_came() -> None:
    backend = ScriptedBackend()
    tokenizer = FakeChatTokenizer(make_char_tokenizer())
    service = GenerationService(backend, tokenizer, GatewaySettings())
    async for _ in service.stream(make_spec(trace=PARENT)):
        pass
    async for _ in service.stream(make_spec(trace=Trace("garbage", "x"))):
        pass
    assert [spec.trace for spec in backend.specs] == [PARENT, Trace()]
