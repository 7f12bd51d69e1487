"""What verifiers say of their engines, in /metrics beside what the gateway delivered.

Asked for when Prometheus asks. The figures are the whole pool's, so every gateway gives the same
ones; a pool's dashboard takes the largest of them, never the sum.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cluster.gateway.cells import Cells
from pilotfish.v1 import control_pb2 as pb

StatusSource = Callable[[], Awaitable[pb.Status]]

MOST_REMEMBERED = 256
"""Engines, of those that are gone too: one that answers late must not be counted anew."""


class EngineFigures:
    """vLLM's names of engine figures, over all verifiers."""

    def __init__(self, cells: Cells) -> None:
        self._usage = cells.level(
            "vllm:kv_cache_usage_perc",
            "Share of the verifiers' KV blocks that requests hold; 1 is all of them.",
        )
        self._preemptions = cells.count(
            "vllm:num_preemptions", "Requests that lost their KV blocks to others for a while."
        )
        self._seen: dict[tuple[str, int], int] = {}

    def update(self, status: pb.Status) -> None:
        """Usage is of the verifiers that answered. Preemptions of an engine that is gone stay
        counted, and those of its successor add to them: the counter never falls."""
        total = sum(v.total_blocks for v in status.verifiers)
        free = sum(v.free_blocks for v in status.verifiers)
        self._usage.value = (total - free) / total if total else 0.0
        for verifier in status.verifiers:
            engine, count = (verifier.verifier, verifier.pid), verifier.engine.preemptions
            seen = self._seen.pop(engine, 0)
            self._preemptions.inc(max(0, count - seen))
            self._seen[engine] = max(count, seen)
        while len(self._seen) > MOST_REMEMBERED:
            del self._seen[next(iter(self._seen))]
