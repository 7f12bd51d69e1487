"""Trace spans of traced requests, from the times the events carry.

Made on the stream's thread after the frame is on its way: the engine's thread only reads clocks.
"""

from __future__ import annotations

from collections.abc import Iterable

from actors.engine.events import TokenEvent
from actors.engine.options import SpanSink


def emit_spans(events: Iterable[TokenEvent], sink: SpanSink) -> None:
    """`queue` and `prefill` with a request's first token, then a `round` for each step."""
    for event in events:
        if not event.trace[0] or not event.tokens:
            continue
        if event.first:
            sink(event.trace, "queue", event.arrived_ns, event.admitted_ns, {})
            sink(event.trace, "prefill", event.admitted_ns, event.ended_ns, {})
            continue
        attributes: dict[str, str | int | float | bool] = {
            "pilotfish.draft.depth": event.drafted,
            "pilotfish.draft.accepted": event.accepted,
            "pilotfish.draft.mechanism": event.mechanism or "none",
            "pilotfish.draft.remote": event.remote,
            "pilotfish.round.tokens": len(event.tokens),
        }
        if event.reason:
            attributes["pilotfish.draft.reason"] = event.reason
        sink(event.trace, "round", event.started_ns, event.ended_ns, attributes)
