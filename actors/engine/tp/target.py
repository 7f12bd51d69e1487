"""The target cut over ranks: each keeps its own heads' keys and values, all see the same rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from typing_extensions import override

from actors.engine.batch import StepBatch
from actors.engine.kv import KVPool
from actors.engine.memory import free_memory
from actors.engine.state import paged_layers
from actors.engine.target import Target
from actors.engine.tp.lead import Lead
from actors.engine.tp.loading import local_kv_heads
from actors.engine.tp.protocol import REFERENCE, STEP, RankFacts
from actors.engine.tp.sizes import local_specification
from actors.engine.tp.step import encode_step


class RankTarget(Target):
    """One rank's shard. Hidden states are whole on every rank, so taps return whole rows."""

    def __init__(
        self, model: Any, world: int, taps: tuple[int, ...] = (), device: str = "cpu"
    ) -> None:
        super().__init__(model, taps, device)
        spec = local_specification(self.info.spec, local_kv_heads(model, world))
        self.info = replace(self.info, spec=spec)
        self._world = world

    def facts(self) -> RankFacts:
        """What rank 0 compares, and this rank's part of the free memory: a GPU is its own, the
        machine's is everybody's."""
        info = self.info
        layers = ", ".join(
            f"{layer.kv_heads}x{layer.head_dim}" for layer in paged_layers(info.spec)
        )
        kind = f"{self.model.config.model_type} of {info.vocab_size} tokens in {info.dtype}"
        free = free_memory(self.device)
        return RankFacts(
            shard=f"{kind}, KV heads a layer: {layers}",
            free_bytes=free // self._world if self.device == "cpu" else free,
        )


class LeadTarget(RankTarget):
    """Rank 0's shard: tells the others what to compute, then computes its own part."""

    def __init__(
        self, model: Any, lead: Lead, taps: tuple[int, ...] = (), device: str = "cpu"
    ) -> None:
        super().__init__(model, lead.world, taps, device)
        self._lead = lead

    @override
    def forward(self, batch: StepBatch, pool: KVPool) -> torch.Tensor:
        with self._lead.together(STEP, encode_step(batch)):
            return super().forward(batch, pool)

    @override
    def reference(self, batch: StepBatch) -> torch.Tensor:
        with self._lead.together(REFERENCE, encode_step(batch)):
            return super().reference(batch)
