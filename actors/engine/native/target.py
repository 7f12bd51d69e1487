"""The target on the native executor: the same contract as `actors.engine.target.Target`."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from actors.engine.batch import StepBatch
from actors.engine.errors import EngineError
from actors.engine.kv import KVPool
from actors.engine.native import library
from actors.engine.native.library import Library
from actors.engine.native.pack import padded
from actors.engine.native.weights import PackedModel, pack_model
from actors.engine.state import paged_layers
from actors.engine.target import Target, TargetInfo


class NativeTarget:
    """Law: a row's logits, keys, values and features are the same bits in any batch.

    eager: the transformers target it stands for; only its weights are read, at construction.
    """

    def __init__(
        self, eager: Target, compiled: Library, max_model_len: int, threads: int | None = None
    ) -> None:
        self.info: TargetInfo = eager.info
        self.taps: tuple[int, ...] = eager.taps
        self.device = "cpu"
        self.max_model_len = max_model_len
        spec = paged_layers(self.info.spec)
        self.packed: PackedModel = pack_model(eager.model, spec, max_model_len)
        self._compiled = compiled
        self._executor = compiled.create(
            self.packed.model, self.packed.layers, threads or torch.get_num_threads()
        )
        self._close = weakref.finalize(self, compiled.destroy, self._executor)
        self._close.atexit = False  # a daemon thread may be inside; the process's end frees it all
        self._tap = (ctypes.c_int64 * len(self.taps))(*self.taps)
        self._pools: tuple[KVPool, Any, Any] | None = None

    @property
    def feature_dim(self) -> int:
        return len(self.taps) * self.info.hidden_size

    def close(self) -> None:
        """End the executor's threads; a later forward is an error."""
        self._close()

    def forward(self, batch: StepBatch, pool: KVPool) -> torch.Tensor:
        """Logits, float32 [len(batch.keep), vocab]; writes KV and features of all rows."""
        if not self._close.alive:
            raise EngineError("the executor is closed")
        vocab, kept = self.info.vocab_size, int(batch.keep.numel())
        logits = torch.empty(kept, padded(vocab), dtype=torch.float32)
        spans = batch.spans
        tables = [span.table.slots(0, span.kv_stop) for span in spans]
        starts = _integers([span.start for span in spans])
        stops = _integers([span.stop for span in spans])
        pointers = _integers([table.data_ptr() for table in tables])
        keys, values = self._addresses(pool)
        step = library.Step(
            rows=batch.ids.numel(),
            ids=batch.ids.data_ptr(),
            positions=batch.positions.data_ptr(),
            slots=batch.slots.data_ptr(),
            spans=len(spans),
            starts=ctypes.addressof(starts),
            stops=ctypes.addressof(stops),
            tables=ctypes.addressof(pointers),
            keys=ctypes.addressof(keys),
            values=ctypes.addressof(values),
            kept=kept,
            keep=batch.keep.data_ptr(),
            logits=logits.data_ptr(),
            taps=len(self.taps),
            tap=ctypes.addressof(self._tap),
            features=None if pool.features is None else pool.features.data_ptr(),
        )
        self._compiled.forward(self._executor, step)
        return logits[:, :vocab]

    def _addresses(self, pool: KVPool) -> tuple[Any, Any]:
        """Arrays of the layers' addresses; a pool never moves."""
        if self._pools is None or self._pools[0] is not pool:
            keys = _integers([tensor.data_ptr() for tensor in pool.keys])
            values = _integers([tensor.data_ptr() for tensor in pool.values])
            self._pools = (pool, keys, values)
        return self._pools[1:]


def _integers(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)
