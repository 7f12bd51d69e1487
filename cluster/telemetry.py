"""OpenTelemetry traces: one flag turns them on, and no collector can slow serving down.

Spans leave through a bounded queue on a thread of its own; a full queue drops spans, a collector
that is down costs short, rare time-outs on that thread alone. Serve's own tracing is not used:
its proxy drops the client's traceparent, so the gateway takes it from the HTTP headers.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pilotfish import __version__

Attributes = Mapping[str, str | int | float | bool]
SpanSink = Callable[[tuple[str, str], str, int, int, dict[str, str | int | float | bool]], None]
"""((traceparent, tracestate), span name, start ns, end ns, attributes), nanoseconds since 1970."""

QUEUE_SPANS = 8192
BATCH_SPANS = 512
EXPORT_EVERY_MS = 1000
EXPORT_TIMEOUT_S = 3.0
COMPLAIN_EVERY_S = 60.0

_PROPAGATOR = TraceContextTextMapPropagator()


def setup(
    service_name: str, endpoint: str | None, attributes: Attributes | None = None
) -> TracerProvider | None:
    """Make a tracer provider that exports; None without an endpoint.

    endpoint: `host:port` or `http(s)://host:port` of an OTLP gRPC receiver; https speaks TLS.
    """
    if not endpoint:
        return None
    provider = TracerProvider(
        resource=_resource(service_name, attributes or {}),
        shutdown_on_exit=False,  # an exit must not wait for a collector; `shutdown` is bounded
    )
    exporter = OTLPSpanExporter(
        endpoint=endpoint,
        insecure=not endpoint.startswith("https://"),
        timeout=EXPORT_TIMEOUT_S,
    )
    provider.add_span_processor(
        BatchSpanProcessor(
            exporter,
            max_queue_size=QUEUE_SPANS,
            max_export_batch_size=BATCH_SPANS,
            schedule_delay_millis=EXPORT_EVERY_MS,
        )
    )
    _quieten()
    return provider


def shutdown(provider: TracerProvider | None, timeout_s: float = 2.0) -> None:
    """Send what is queued, for at most `timeout_s`, and end the exporter's thread."""
    if provider is None:
        return
    ending = threading.Thread(target=provider.shutdown, name="telemetry-shutdown", daemon=True)
    ending.start()
    ending.join(timeout_s)


def span_sink(provider: TracerProvider | None) -> SpanSink | None:
    """The hook that engines and drafters call off their hot paths; None when tracing is off.

    A span whose trace context is absent, malformed or not sampled is not recorded.
    """
    if provider is None:
        return None
    tracer = provider.get_tracer("pilotfish", __version__)

    def emit(
        parent: tuple[str, str],
        name: str,
        start_ns: int,
        end_ns: int,
        attributes: dict[str, str | int | float | bool],
    ) -> None:
        context = _remote_parent(*parent)
        if context is None:
            return
        span = tracer.start_span(name, context=context, start_time=start_ns, attributes=attributes)
        span.end(end_time=max(start_ns, end_ns))

    return emit


@lru_cache(maxsize=1024)
def _remote_parent(traceparent: str, tracestate: str) -> Context | None:
    """The context a span is made under; a request's many rounds share it, hence the cache."""
    if not traceparent:
        return None
    carrier = {"traceparent": traceparent, "tracestate": tracestate}
    context = _PROPAGATOR.extract(carrier, context=Context())
    parent = trace.get_current_span(context).get_span_context()
    return context if parent.is_valid and parent.trace_flags.sampled else None


def _resource(service_name: str, attributes: Attributes) -> Resource:
    return Resource.create(
        {
            "service.namespace": "pilotfish",
            "service.name": service_name,
            "service.version": __version__,
            "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
            "host.name": socket.gethostname(),
            "process.pid": os.getpid(),
            **attributes,
        }
    )


def _sparse() -> Callable[[logging.LogRecord], bool]:
    """A log filter: one record a minute, so a collector that is down is said, not repeated."""
    next_s = 0.0

    def once_in_a_while(record: logging.LogRecord) -> bool:
        nonlocal next_s
        now_s = time.monotonic()
        if now_s < next_s:
            return False
        next_s = now_s + COMPLAIN_EVERY_S
        return True

    return once_in_a_while


def _quieten() -> None:
    # A filter holds for the logger it sits on alone, so it goes on each that complains.
    for name in (
        "opentelemetry.exporter.otlp.proto.grpc.exporter",
        "opentelemetry.sdk._shared_internal",
    ):
        logger = logging.getLogger(name)
        if not logger.filters:
            logger.addFilter(_sparse())
