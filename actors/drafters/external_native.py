"""A draft model on the native executor: bf16 weights read once for all rows of a forward.

Its sessions share one pool of blocks, which doubles when it is full: how many sessions there will
be, and how long, nobody says beforehand. What sessions gave back is used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from actors.drafters.external_forward import Feed
from actors.drafters.external_kv import token_bytes
from actors.engine.batch import AttentionSpan, StepBatch
from actors.engine.kv import BlockTable, KVPool
from actors.engine.native.check import check
from actors.engine.native.library import Library
from actors.engine.native.target import NativeTarget
from actors.engine.target import Target

BLOCK = 16
FIRST = 64
"""Blocks of a pool that has never grown."""


class GrowingPool:
    """Keys and values of all sessions. A block belongs to one session, or to none."""

    def __init__(self, target: NativeTarget) -> None:
        self._info = target.info
        self._free = list(range(FIRST))
        self.blocks = FIRST
        self.pool = self._sized(FIRST)

    def cover(self, table: BlockTable, rows: int) -> None:
        """Let a session have room for so many rows."""
        missing = table.missing(rows)
        while missing > len(self._free):
            self._grow()
        if missing:
            table.extend(self._free[:missing])
            del self._free[:missing]

    def release(self, table: BlockTable) -> None:
        self._free = sorted([*self._free, *table.clear()])

    @property
    def free(self) -> int:
        """Blocks of no session."""
        return len(self._free)

    def _grow(self) -> None:
        old, blocks = self.pool, 2 * self.blocks
        new = self._sized(blocks)  # without memory for it there are no blocks of it either
        for before, after in ((old.keys, new.keys), (old.values, new.values)):
            for source, place in zip(before, after, strict=True):
                place[: old.num_slots] = source[: old.num_slots]
        self._free.extend(range(self.blocks, blocks))
        self.pool, self.blocks = new, blocks

    def _sized(self, blocks: int) -> KVPool:
        return KVPool(self._info.spec, blocks, BLOCK, self._info.dtype, "cpu")


class PackedForward:
    """model: a transformers causal LM that the executor can run; its weights are copied, and it is
    not needed afterwards. context: positions that may be fed.

    Raises EngineError: no threads or memory, or logits that are not those of the model.
    """

    def __init__(self, model: Any, compiled: Library, context: int, threads: int | None) -> None:
        eager = Target(model)
        self._target = NativeTarget(eager, compiled, context, threads)
        check(self._target, eager)
        self._memory = GrowingPool(self._target)
        self.weight_bytes = self._target.packed.bytes
        self.token_bytes = token_bytes(model)

    @property
    def memory(self) -> GrowingPool:
        return self._memory

    def session(self) -> BlockTable:
        return BlockTable(BLOCK, "cpu")

    def close(self, kv: BlockTable) -> None:
        self._memory.release(kv)

    def __call__(self, feeds: Sequence[Feed]) -> torch.Tensor:
        for kv, tokens, offset in feeds:
            self._memory.cover(kv, offset + len(tokens))
        ids, positions = list[int](), list[int]()
        slots, spans = list[torch.Tensor](), list[AttentionSpan]()
        for kv, tokens, offset in feeds:
            start, end = len(ids), offset + len(tokens)
            ids.extend(tokens)
            positions.extend(range(offset, end))
            slots.append(kv.slots(offset, end))
            spans.append(AttentionSpan(start, len(ids), end, kv))
        step = StepBatch(
            ids=torch.tensor([ids]),
            positions=torch.tensor([positions]),
            slots=torch.cat(slots),
            keep=torch.tensor([span.stop - 1 for span in spans]),
            spans=tuple(spans),
        )
        return self._target.forward(step, self._memory.pool)
