"""One trace from the client's traceparent through gateway, queue, prefill, rounds and drafter."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass
from queue import Queue

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.integration.conftest import Deploy, Deployed
from tests.integration.processes import eventually

pytestmark = pytest.mark.cluster

PARENT_ID = "00f067aa0ba902b7"
PROMPT = "abcdefghijklmnopabcd"
SERVICES = {"pilotfish-gateway", "pilotfish-verifier", "pilotfish-drafter"}


class Receiver(otlp_grpc.TraceServiceServicer):
    """An OTLP collector in this process."""

    def __init__(self) -> None:
        self._queue: Queue[otlp.ExportTraceServiceRequest] = Queue()
        self._seen: list[tuple[str, Span]] = []

    def Export(
        self, request: otlp.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> otlp.ExportTraceServiceResponse:
        self._queue.put(request)
        return otlp.ExportTraceServiceResponse()

    def of_trace(self, trace_id: str) -> list[tuple[str, Span]]:
        """(service, span) of everything that has come for the trace."""
        while not self._queue.empty():
            for resource in self._queue.get().resource_spans:
                named = {a.key: a.value.string_value for a in resource.resource.attributes}
                for scope in resource.scope_spans:
                    self._seen += [(named["service.name"], span) for span in scope.spans]
        return [(service, span) for service, span in self._seen if span.trace_id.hex() == trace_id]


@dataclass(frozen=True, slots=True)
class Traced:
    app: Deployed
    receiver: Receiver


@pytest.fixture(scope="module")
def traced(deploy: Deploy, alphabet_model: str) -> Iterator[Traced]:
    receiver = Receiver()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    otlp_grpc.add_TraceServiceServicer_to_server(receiver, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        # D is fixed: on a busy machine the policy asks nobody, and there is nothing to trace.
        app = deploy(
            model=alphabet_model,
            speculative_config={"method": "suffix", "adaptive": False},
            otlp_traces_endpoint=f"http://127.0.0.1:{port}",
        )
        yield Traced(app, receiver)
    finally:
        server.stop(None)


def whole_trace(receiver: Receiver, trace_id: str) -> list[tuple[str, Span]]:
    """The trace's spans once every service has sent its own."""
    eventually(lambda: {service for service, _ in receiver.of_trace(trace_id)} == SERVICES, 60.0)
    return receiver.of_trace(trace_id)


def attributes(span: Span) -> dict[str, object]:
    return {
        a.key: getattr(a.value, a.value.WhichOneof("value") or "string_value")
        for a in span.attributes
    }


def rounds_of(spans: list[tuple[str, Span]]) -> list[dict[str, object]]:
    return [attributes(span) for _, span in spans if span.name == "round"]


def accepted_in(spans: list[tuple[str, Span]]) -> int:
    return sum(int(str(found["pilotfish.draft.accepted"])) for found in rounds_of(spans))


def test_one_grpc_request_is_one_trace_through_every_process(traced: Traced) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    with traced.app.client() as client:
        done = client.generate(
            PROMPT,
            max_tokens=60,
            temperature=0,
            traceparent=f"00-{trace_id}-{PARENT_ID}-01",
        )
    # A process sends its spans in batches: the last rounds may come after the first.
    eventually(
        lambda: accepted_in(traced.receiver.of_trace(trace_id)) >= done.speculation.accepted, 60.0
    )
    spans = whole_trace(traced.receiver, trace_id)
    names = {name for _, span in spans for name in [span.name]}
    assert {"llm_request", "queue", "prefill", "round", "draft"} <= names
    (request,) = [span for _, span in spans if span.name == "llm_request"]
    assert request.parent_span_id.hex() == PARENT_ID
    rounds = rounds_of(spans)
    for name in ("pilotfish.draft.depth", "pilotfish.draft.accepted", "pilotfish.draft.mechanism"):
        assert all(name in found for found in rounds)
    assert accepted_in(spans) == done.speculation.accepted > 0
    assert "suffix" in {found["pilotfish.draft.mechanism"] for found in rounds}


def test_every_span_lies_within_its_request(traced: Traced) -> None:
    trace_id = "5bf92f3577b34da6a3ce929d0e0e4736"
    with traced.app.client() as client:
        client.generate(
            PROMPT, max_tokens=30, temperature=0, traceparent=f"00-{trace_id}-{PARENT_ID}-01"
        )
    spans = whole_trace(traced.receiver, trace_id)
    (request,) = [span for _, span in spans if span.name == "llm_request"]
    for service, span in spans:
        if service == "pilotfish-verifier":
            assert span.parent_span_id == request.span_id
            assert request.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= request.end_time_unix_nano


def test_the_traceparent_of_an_http_request_is_honoured(traced: Traced) -> None:
    trace_id = "6bf92f3577b34da6a3ce929d0e0e4736"
    answer = httpx.post(
        f"{traced.app.http_url}/v1/completions",
        json={"prompt": PROMPT, "max_tokens": 40, "temperature": 0},
        headers={"traceparent": f"00-{trace_id}-{PARENT_ID}-01"},
        timeout=30,
    )
    assert answer.status_code == 200
    spans = whole_trace(traced.receiver, trace_id)
    (request,) = [span for _, span in spans if span.name == "llm_request"]
    assert request.parent_span_id.hex() == PARENT_ID


def test_a_request_that_is_not_sampled_leaves_no_span(traced: Traced) -> None:
    trace_id = "7bf92f3577b34da6a3ce929d0e0e4736"
    after = "8bf92f3577b34da6a3ce929d0e0e4736"
    with traced.app.client() as client:
        for trace, flag in ((trace_id, "00"), (after, "01")):
            client.generate(
                PROMPT, max_tokens=40, temperature=0, traceparent=f"00-{trace}-{PARENT_ID}-{flag}"
            )
    whole_trace(traced.receiver, after)
    assert traced.receiver.of_trace(trace_id) == []
