"""W3C trace context for outgoing calls, without a dependency on OpenTelemetry."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


def trace_metadata(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """traceparent and tracestate: the caller's own, else those of the current span.

    A program that traces has imported OpenTelemetry itself, so it is never imported for it.
    """
    if options.get("traceparent"):
        carrier = {name: options.get(name) or "" for name in ("traceparent", "tracestate")}
    else:
        carrier = _current()
    return [(name, value) for name, value in carrier.items() if value]


def _current() -> dict[str, str]:
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier
