"""What every door calls once a request is validated: one place for ids in flight, metrics, span.

    spec -> claim the id -> span, meter -> generate over the backend -> deltas

Everything is given back when the stream is exhausted, closed, cancelled or fails.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from opentelemetry.trace import TracerProvider

from cluster.gateway.generation import generate
from cluster.gateway.inflight import InFlight
from cluster.gateway.meter import RequestMeter
from cluster.gateway.metrics import GatewayMetrics
from cluster.gateway.settings import GatewaySettings
from cluster.gateway.text import ChatTokenizer, TextCodec
from cluster.gateway.tracing import request_span
from cluster.gateway.types import (
    Backend,
    BackendHealth,
    Delta,
    GenerateSpec,
    ReportsHealth,
)


class GenerationService:
    """One gateway replica's core, shared by its HTTP and gRPC doors."""

    def __init__(
        self,
        backend: Backend,
        tokenizer: ChatTokenizer,
        settings: GatewaySettings,
        *,
        clock: Callable[[], float] = time.perf_counter,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        self.backend = backend
        self.codec = TextCodec(tokenizer)
        self.settings = settings
        self.model_name = settings.served_model_name or "default"
        self.metrics = GatewayMetrics(
            self.model_name, settings.num_speculative_tokens, cohorts=settings.cohorts.names
        )
        self.in_flight = InFlight()
        self._clock = clock
        self._tracer_provider = tracer_provider

    async def stream(self, spec: GenerateSpec) -> AsyncGenerator[Delta, None]:
        """Deltas of one request, the last with finish, usage, stats and timing. Raises
        `GatewayError` subclasses; `DuplicateRequest` at the first step."""
        with (
            self.in_flight.claim(spec.request_id),
            request_span(spec, self.model_name, self._tracer_provider) as span,
            RequestMeter(self.metrics, spec, self._clock) as meter,
        ):
            traced = replace(spec, trace=span.trace)
            async with aclosing(generate(self.backend, self.codec, traced)) as deltas:
                async for delta in deltas:
                    timing = meter.delta(delta)
                    if timing is None:
                        yield delta
                        continue
                    last = replace(delta, timing=timing)
                    span.finish(last)
                    yield last

    async def health(self) -> BackendHealth:
        """Raises `GatewayError` when no verifier is reachable."""
        if isinstance(self.backend, ReportsHealth):
            return await self.backend.health()
        await self.backend.info()
        return BackendHealth(verifiers=1)
