"""Where a stream's answers go, and the trace spans that travel with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pilotfish.v1 import exchange_pb2 as pb

Trace = tuple[str, str]
"""traceparent, tracestate; empty when not traced."""

Attributes = dict[str, str | int | float | bool]

SpanHook = Callable[[Trace, str, int, int, Attributes], None]
"""trace, span name, start ns, end ns (wall clock), attributes; called off the hot path."""


@dataclass(frozen=True, slots=True)
class Span:
    """One `draft` of a traced session."""

    trace: Trace
    start_ns: int
    end_ns: int
    attributes: Attributes


class Sink(Protocol):
    """One verifier's round lane. `put` never blocks and never raises."""

    @property
    def closed(self) -> bool:
        """True once the stream has ended: nothing of it is taken any more."""
        ...

    def put(self, frame: pb.DrafterFrame, spans: Sequence[Span] = ()) -> None: ...
