"""What verifiers say of their engines, in /metrics beside what the gateway delivered.

Asked for when Prometheus or the live page asks. The figures are the whole pool's, so every gateway
gives the same ones; a pool's dashboard takes the largest of them, never the sum.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from cluster.gateway.cells import Cells
from cluster.gateway.decision_figures import DecisionFigures
from cluster.gateway.growth import Growth
from cluster.gateway.time_figures import TimeFigures
from pilotfish.v1 import control_pb2 as pb
from policies.cohorts import DEFAULT

StatusSource = Callable[[], Awaitable[pb.Status]]


class EngineFigures:
    """vLLM's names of engine figures and the project's own, over all verifiers."""

    def __init__(self, cells: Cells, cohorts: Iterable[str] = (DEFAULT,)) -> None:
        self._usage = cells.level(
            "vllm:kv_cache_usage_perc",
            "Share of the verifiers' KV blocks that requests hold; 1 is all of them.",
        )
        self._preemptions = cells.count(
            "vllm:num_preemptions", "Requests that lost their KV blocks to others for a while."
        )
        self._growth = Growth[str]()
        self.times = TimeFigures(cells)
        self.decisions = DecisionFigures(cells, cohorts)

    def update(self, status: pb.Status) -> None:
        """Usage is of the verifiers that answered. Preemptions of an engine that is gone stay
        counted, and those of its successor add to them: the counter never falls."""
        total = sum(v.total_blocks for v in status.verifiers)
        free = sum(v.free_blocks for v in status.verifiers)
        self._usage.value = (total - free) / total if total else 0.0
        for verifier in status.verifiers:
            engine, counts = (verifier.verifier, verifier.pid), verifier.engine
            grown = self._growth.since(engine, {"preemptions": float(counts.preemptions)})
            self._preemptions.inc(sum(grown.values()))
        self.times.update(status)
        self.decisions.update(status)
