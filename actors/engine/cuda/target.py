"""The target on a CUDA device: a graph for each shape, eager until it is there (DESIGN §8).

A shape's first forward is eager, its second captures, the next ones replay. A step that fits no
shape, a pool that is not the engine's and a shape for which there is no memory stay eager. A model
that cannot be captured (experts that count their rows, for one) does so too, with the reason said.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import torch

from actors.engine.batch import StepBatch
from actors.engine.cuda.shapes import Shape, shape_of
from actors.engine.cuda.static import StaticForward
from actors.engine.kv import KVPool
from actors.engine.memory import free_memory
from actors.engine.state import PagedKV
from actors.engine.target import Target

logger = logging.getLogger(__name__)

MEMORY_SHARE = 0.5
"""Of what is free when the weights and the pool are there."""
EAGER_FIRST = 1
"""Forwards of a shape before it is captured: allocators and kernels are warm by then."""


def graph_budget(device: str) -> int:
    """Bytes for graphs on a device that holds the weights and the pool already."""
    return int(MEMORY_SHARE * free_memory(device))


class GraphTarget:
    """Implements `actors.engine.executor.Executor` over an eager target and the engine's pool.

    budget_bytes: what all graphs together may take. graph_bytes: what they do. reason: why nothing
    is captured any more; empty while it is.
    """

    def __init__(self, eager: Target, pool: KVPool, max_model_len: int, budget_bytes: int) -> None:
        self.eager = eager
        self.info, self.taps, self.device = eager.info, eager.taps, eager.device
        self.graph_bytes = 0
        attention = all(isinstance(layer, PagedKV) for layer in eager.info.spec)
        self.reason = "" if attention else "recurrent states are no part of a graph yet"
        self._pool, self._max_model_len = pool, max_model_len
        self._budget_bytes = budget_bytes
        self._met: Counter[Shape] = Counter()
        self._graphs: dict[Shape, tuple[Any, StaticForward, torch.Tensor]] = {}
        self._memory: Any = None  # one pool for all graphs: never two of them run at once

    @property
    def feature_dim(self) -> int:
        return self.eager.feature_dim

    @torch.inference_mode()
    def forward(self, batch: StepBatch, pool: KVPool) -> torch.Tensor:
        """Logits [len(batch.keep), vocab]; writes KV and features of all rows into the pool."""
        shape = self._shape(batch) if pool is self._pool else None
        if shape is None or not self._ready(shape, batch):
            return self.eager.forward(batch, pool)
        graph, static, logits = self._graphs[shape]
        static.load(batch)
        graph.replay()
        return logits[batch.keep]

    def _shape(self, batch: StepBatch) -> Shape | None:
        longest = max(span.kv_stop for span in batch.spans)
        rows = batch.ids.shape[1]
        return shape_of(rows, longest, self._max_model_len, self._pool.block_size)

    def _ready(self, shape: Shape, batch: StepBatch) -> bool:
        """Whether there is a graph; the first time that it could be worth it, make one."""
        if shape in self._graphs:
            return True
        self._met[shape] += 1
        if self.reason or self._met[shape] <= EAGER_FIRST:
            return False
        if self.graph_bytes + self.least_bytes(shape) > self._budget_bytes:
            return False
        try:
            self._capture(shape, batch)
        except Exception as error:
            self.reason = f"a forward of {shape.rows} rows cannot be captured: {error}"
            logger.warning("%s; forwards without a graph are eager", self.reason)
        return shape in self._graphs

    def least_bytes(self, shape: Shape) -> int:
        """What a graph needs at least: keys and values of one layer as its rows see them."""
        layers = [layer.row_elements for layer in self.info.spec if isinstance(layer, PagedKV)]
        tokens = shape.rows * shape.blocks * self._pool.block_size
        return tokens * max(layers, default=0) * self.info.dtype.itemsize

    def _capture(self, shape: Shape, batch: StepBatch) -> None:
        device = torch.device(self.device)
        before = torch.cuda.memory_reserved(device)
        static = StaticForward(self.eager, self._pool, shape)
        static.load(batch)
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):  # libraries set themselves up outside of the graph
            static.run()
        torch.cuda.current_stream(device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            logits = static.run()
        self._memory = self._memory or graph.pool()
        self._graphs[shape] = graph, static, logits
        self.graph_bytes += max(0, torch.cuda.memory_reserved(device) - before)
        logger.info("captured %s: %d MiB of graphs", shape, self.graph_bytes >> 20)
