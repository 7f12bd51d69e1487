"""W3C trace context for outgoing calls, without a dependency on OpenTelemetry."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from pilotfish._errors import InvalidRequestError

# version-trace id-parent id-flags; ids of zeros alone and version ff are invalid, and a version
# to come may append fields (W3C Trace Context, level 1).
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-[!-~]*)?"
)
_TRACESTATE = re.compile(r"[ -~]{0,512}")


def trace_metadata(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """traceparent and tracestate: the caller's own, else those of the current span. Raises
    InvalidRequestError for one that no header can carry or no tracer read.

    A program that traces has imported OpenTelemetry itself, so it is never imported for it.
    """
    parent, state = options.get("traceparent"), options.get("tracestate")
    if parent:
        if not isinstance(parent, str) or not _TRACEPARENT.fullmatch(parent):
            raise _refused("traceparent", f"{str(parent)[:60]!r} is no W3C trace context")
        if state and (not isinstance(state, str) or not _TRACESTATE.fullmatch(state)):
            raise _refused("tracestate", "at most 512 printable ASCII characters are wanted")
        return [("traceparent", parent), *([("tracestate", state)] if state else [])]
    if state:
        raise _refused("tracestate", "it belongs to a traceparent, and none is given")
    return _current()


def _current() -> list[tuple[str, str]]:
    if "opentelemetry.trace" not in sys.modules:
        return []
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return [(name, value) for name, value in carrier.items() if value]


def _refused(param: str, problem: str) -> InvalidRequestError:
    return InvalidRequestError(f"{param}: {problem}", code="INVALID_ARGUMENT", param=param)
