"""The request's span, over the OpenTelemetry API alone: without an SDK it costs next to nothing.

Name, kind and attributes are vLLM's (`llm_request`, SERVER, `gen_ai.usage.prompt_tokens`, …)
beside those of the semantic conventions; speculation has none there, so it goes under
`pilotfish.`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from cluster.gateway.types import Delta, GenerateSpec, Stats, Trace

_PROPAGATOR = TraceContextTextMapPropagator()
_TRACER = "pilotfish.gateway"


@dataclass(frozen=True, slots=True)
class RequestSpan:
    """The open span of a request. `trace` is its context for the verifier: the client's own when
    nothing records here."""

    span: Span
    trace: Trace

    def finish(self, delta: Delta) -> None:
        """Attributes of the whole, from the last delta."""
        if not self.span.is_recording():
            return
        self.span.set_attributes(
            {
                "gen_ai.usage.prompt_tokens": delta.prompt_tokens,
                "gen_ai.usage.completion_tokens": delta.completion_tokens,
                "gen_ai.usage.input_tokens": delta.prompt_tokens,
                "gen_ai.usage.output_tokens": delta.completion_tokens,
                "gen_ai.response.finish_reasons": [delta.finish or ""],
            }
        )
        if delta.timing is not None:
            self.span.set_attribute("gen_ai.latency.time_to_first_token", delta.timing.ttft_s)
            self.span.set_attribute("gen_ai.latency.e2e", delta.timing.total_s)
            self.span.set_attribute(
                "gen_ai.latency.time_in_model_decode", delta.timing.total_s - delta.timing.ttft_s
            )
        if delta.stats is not None:
            _speculation(self.span, delta.stats)


@contextmanager
def request_span(
    spec: GenerateSpec, model: str, provider: TracerProvider | None = None
) -> Iterator[RequestSpan]:
    """A span under the client's traceparent (`spec.trace`), ended with the block; an exception
    marks it failed, a cancellation or an early close is an event. `provider`: default, the
    process's."""
    carrier = {"traceparent": spec.trace.traceparent, "tracestate": spec.trace.tracestate}
    parent = _PROPAGATOR.extract({key: value for key, value in carrier.items() if value})
    tracer = trace.get_tracer(_TRACER, tracer_provider=provider)
    span = tracer.start_span("llm_request", parent, SpanKind.SERVER)
    try:
        if span.is_recording():
            span.set_attributes(_request_attributes(spec, model))
        yield RequestSpan(span, _context_of(span))
    except Exception as error:
        span.record_exception(error)
        span.set_status(Status(StatusCode.ERROR, str(error)))
        raise
    except BaseException:
        span.add_event("aborted")
        raise
    finally:
        span.end()


def _context_of(span: Span) -> Trace:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
    return Trace(carrier.get("traceparent", ""), carrier.get("tracestate", ""))


def _request_attributes(spec: GenerateSpec, model: str) -> dict[str, str | int | float]:
    sampling = spec.sampling
    attributes: dict[str, str | int | float] = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.request.id": spec.request_id,
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.top_k": sampling.top_k,
        "gen_ai.request.n": 1,
        "pilotfish.cohort": spec.cohort,
    }
    if spec.max_draft_len is not None:
        attributes["pilotfish.max_draft_len"] = spec.max_draft_len
    return attributes


def _speculation(span: Span, stats: Stats) -> None:
    span.set_attributes(
        {
            "gen_ai.latency.time_in_queue": stats.queue_s,
            "gen_ai.latency.time_in_model_prefill": stats.prefill_s,
            "gen_ai.usage.cache_read.input_tokens": stats.cached_tokens,
            "pilotfish.rounds": stats.rounds,
            "pilotfish.drafted_tokens": stats.drafted,
            "pilotfish.accepted_tokens": stats.accepted,
            "pilotfish.remote_accepted_tokens": stats.remote_accepted,
            "pilotfish.max_drafted": max(stats.per_step_drafted, default=0),
            "pilotfish.mechanisms": sorted(stats.mechanisms),
            "pilotfish.undrafted_reasons": sorted(stats.reasons),
        }
    )
