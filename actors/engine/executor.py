"""What the engine asks of a target, whoever computes it: transformers, ranks or the native code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from actors.engine.batch import StepBatch
    from actors.engine.kv import KVPool
    from actors.engine.target import TargetInfo


class Executor(Protocol):
    """A causal LM over packed rows and the paged cache."""

    info: TargetInfo
    taps: tuple[int, ...]
    device: str

    @property
    def feature_dim(self) -> int:
        """Numbers of one row of features: taps times hidden; 0 without taps."""

    def forward(self, batch: StepBatch, pool: KVPool) -> torch.Tensor:
        """Logits [len(batch.keep), vocab]; writes KV and features of all rows into the pool."""
