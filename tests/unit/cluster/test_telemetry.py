import time
from concurrent import futures
from queue import Queue

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cluster import telemetry
from cluster.serving import free_port

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


class Collector(otlp_grpc.TraceServiceServicer):
    def __init__(self) -> None:
        self.requests: Queue[otlp.ExportTraceServiceRequest] = Queue()

    def Export(
        self, request: otlp.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> otlp.ExportTraceServiceResponse:
        self.requests.put(request)
        return otlp.ExportTraceServiceResponse()


def make_provider(endpoint: str) -> TracerProvider:
    provider = telemetry.setup("pilotfish-test", endpoint, {"pilotfish.verifier": "v0"})
    assert provider is not None
    return provider


def test_without_an_endpoint_nothing_is_set_up() -> None:
    assert telemetry.setup("pilotfish-test", None) is None
    assert telemetry.span_sink(None) is None
    telemetry.shutdown(None)


def test_a_span_arrives_under_the_remote_parent_with_its_own_times() -> None:
    collector = Collector()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    otlp_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        provider = make_provider(f"http://127.0.0.1:{port}")
        sink = telemetry.span_sink(provider)
        assert sink is not None
        sink((PARENT, "vendor=1"), "round", 1_000, 2_000, {"pilotfish.draft.depth": 4})
        telemetry.shutdown(provider)
        request = collector.requests.get(timeout=5)
    finally:
        server.stop(None)
    (resource,) = request.resource_spans
    named = {a.key: a.value.string_value for a in resource.resource.attributes}
    assert named["service.name"] == "pilotfish-test"
    assert named["pilotfish.verifier"] == "v0"
    (span,) = resource.scope_spans[0].spans
    assert span.trace_id.hex() == TRACE
    assert span.parent_span_id.hex() == "00f067aa0ba902b7"
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1_000, 2_000)
    assert span.trace_state == "vendor=1"
    assert [(a.key, a.value.int_value) for a in span.attributes] == [("pilotfish.draft.depth", 4)]


@pytest.mark.parametrize("parent", ["", "garbage", PARENT[:-2] + "00"])
def test_what_is_not_traced_makes_no_span(parent: str) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    memory = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    sink = telemetry.span_sink(provider)
    assert sink is not None
    sink((parent, ""), "round", 1, 2, {})
    assert memory.get_finished_spans() == ()
    sink((PARENT, ""), "round", 1, 2, {})
    assert len(memory.get_finished_spans()) == 1


def test_a_collector_that_is_down_costs_the_caller_nothing_and_the_end_two_seconds() -> None:
    provider = make_provider(f"127.0.0.1:{free_port()}")
    sink = telemetry.span_sink(provider)
    assert sink is not None
    started = time.perf_counter()
    for _ in range(2_000):
        sink((PARENT, ""), "round", 1, 2, {"pilotfish.draft.depth": 4})
    assert time.perf_counter() - started < 2.0
    started = time.perf_counter()
    telemetry.shutdown(provider, timeout_s=1.0)
    assert time.perf_counter() - started < 2.0
