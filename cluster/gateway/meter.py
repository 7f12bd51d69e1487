"""One request's passage through the metrics, on the gateway's clock."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from cluster.gateway.errors import Overloaded
from cluster.gateway.metrics import GatewayMetrics
from cluster.gateway.types import PREFILL, Delta, GenerateSpec, Timing


class RequestMeter:
    """A context manager around one request; `delta` counts each delivered delta.

    The request leaves by the last delta's finish, as "error" by an exception or as "abort" when
    the block is cancelled or closed before.
    """

    def __init__(
        self, metrics: GatewayMetrics, spec: GenerateSpec, clock: Callable[[], float]
    ) -> None:
        self._metrics = metrics
        self._spec = spec
        self._clock = clock
        self._start = self._last = clock()
        self._first: float | None = None
        self._tokens = 0
        self._end: Delta | None = None

    def __enter__(self) -> RequestMeter:
        self._metrics.waiting.inc()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        metrics = self._metrics
        (metrics.waiting if self._first is None else metrics.running).dec()
        if self._end is not None and self._end.finish is not None:
            metrics.finished[self._end.finish].inc()
            self._finished(self._end)
        else:
            failed = kind is not None and issubclass(kind, Exception)
            metrics.finished["error" if failed else "abort"].inc()
            if isinstance(error, Overloaded):
                metrics.rejections(error.limit).inc()

    def delta(self, delta: Delta) -> Timing | None:
        """Count one delta; the request's timing when it is the last one."""
        now = self._clock()
        tokens = len(delta.token_ids)
        if tokens:
            self._arrived(now, tokens)
        if delta.cached_tokens:
            self._metrics.prefix_hits.inc(delta.cached_tokens)
            self._metrics.prompt_tokens_cached.inc(delta.cached_tokens)
        self._metrics.cohorts.round(self._spec.cohort, delta)
        if delta.drafted:
            self._drafted(delta)
        elif delta.reason and delta.reason != PREFILL:
            self._metrics.rounds(delta.reason).inc()
        if delta.finish is None:
            return None
        self._end = delta
        return self._timing()

    def _arrived(self, now: float, tokens: int) -> None:
        metrics = self._metrics
        later = tokens
        if self._first is None:
            self._first = self._last = now
            metrics.waiting.dec()
            metrics.running.inc()
            metrics.prompt_tokens.inc(len(self._spec.prompt_ids))
            metrics.prefix_queries.inc(len(self._spec.prompt_ids))
            metrics.ttft.observe(now - self._start)
            later -= 1
        if later:
            metrics.itl.observe((now - self._last) / later, later)
        self._last = now
        self._tokens += tokens
        metrics.generation_tokens.inc(tokens)

    def _drafted(self, delta: Delta) -> None:
        metrics = self._metrics
        metrics.rounds("drafted").inc()
        metrics.drafts.inc()
        metrics.draft_tokens.inc(delta.drafted)
        metrics.accepted_tokens.inc(delta.accepted)
        if delta.remote:
            metrics.remote_accepted.inc(delta.accepted)
        for k in range(delta.drafted):
            drafted, accepted = metrics.position(k)
            drafted.inc()
            if k < delta.accepted:
                accepted.inc()

    def _timing(self) -> Timing:
        first = self._last if self._first is None else self._first
        decode = self._last - first
        return Timing(
            ttft_s=first - self._start,
            total_s=self._last - self._start,
            mean_itl_s=decode / (self._tokens - 1) if self._tokens > 1 else None,
        )

    def _finished(self, end: Delta) -> None:
        metrics, timing = self._metrics, self._timing()
        metrics.e2e.observe(timing.total_s)
        metrics.decode.observe(timing.total_s - timing.ttft_s)
        if timing.mean_itl_s is not None:
            metrics.tpot.observe(timing.mean_itl_s)
        metrics.request_prompt_tokens.observe(end.prompt_tokens)
        metrics.request_generation_tokens.observe(end.completion_tokens)
        metrics.request_max_tokens.observe(self._spec.sampling.max_tokens)
        if end.stats is not None:
            metrics.queue.observe(end.stats.queue_s)
            metrics.prefill.observe(end.stats.prefill_s)
