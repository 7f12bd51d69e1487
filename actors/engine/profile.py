"""What a forward costs by its rows, sequences and context, measured before serving (DESIGN §9)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch

from actors.engine.batch import AttentionSpan, StepBatch
from actors.engine.executor import Executor
from actors.engine.kv import BlockTable, KVPool
from actors.engine.sizing import row_bytes
from policies.estimate_cost import Sample

ROWS = (1, 16, 2, 4, 8, 12, 13, 6, 7, 32, 3, 24, 64, 48, 5, 17, 18, 19)
"""In the order of their worth. The first two are always looked at: they give the slope. Kernels
work in tiles, and a batch that fills its tiles pays a whole one for its first drafted row: a curve
drawn over such an edge would promise it for a fraction. So edges are looked at from both sides:
tiles of 6 rows (`native/src/gemm.h`) and of 16 (matrix units)."""
CONTEXT = 192
LONG = 2048
"""Tokens of the context that tells what more of it costs."""
SPREAD = (8, 4, 2)
"""Sequences among which the same rows and the same context are dealt out: the first that fits."""
ENOUGH_S = 1.2
"""Once so much time has gone, fewer numbers of rows are looked at; and after this, nothing else:"""
MOST_S = 1.6
BLOCK = 16
ROOM_BYTES = 256 << 20
"""What a pool that is made for this may take; a long context goes without where it is more."""


class Step(NamedTuple):
    """rows and length (committed tokens and rows) of each sequence."""

    sequences: int
    rows: int
    length: int

    @property
    def total_rows(self) -> int:
        return self.sequences * self.rows

    def blocks(self, pool: KVPool) -> int:
        """That it takes of a pool."""
        return self.sequences * -(-self.length // pool.block_size)


def profile(
    target: Executor,
    max_model_len: int,
    pool: KVPool | None = None,
    max_num_seqs: int = max(SPREAD),
    *,
    patience: float = 1.0,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Sample]:
    """The better of two forwards each, over zeros that pass for computed rows.

    Most are of one sequence. Then the same rows and context are dealt out among several (no more
    than max_num_seqs), and one attends to a long context, while there is time and room.
    pool: the first blocks of one that nobody uses yet (ranks of a target have theirs and know no
    other); None makes one for this. patience: times the time it may take."""
    length = _length(max_model_len)
    pool = pool or _own_pool(target, length, min(max_model_len, LONG))
    long = min(max_model_len, LONG, pool.num_slots)
    samples: list[Sample] = []
    spent_s = 0.0
    for rows in ROWS:
        if rows > length:
            continue
        if len(samples) >= 2 and spent_s > patience * ENOUGH_S:
            break
        samples.append(_sample(target, pool, Step(1, rows, length), clock))
        spent_s += 3 * samples[-1].seconds
    known = {sample.rows for sample in samples}
    for step in _beside(length, long, max_num_seqs):
        if spent_s > patience * MOST_S:
            break
        if step.total_rows in known and step.blocks(pool) * pool.block_size <= pool.num_slots:
            samples.append(_sample(target, pool, step, clock))
            spent_s += 3 * samples[-1].seconds
    return sorted(samples, key=lambda s: (s.rows, s.sequences, s.context))


def one_row(
    target: Executor,
    max_model_len: int,
    pool: KVPool | None = None,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> Sample:
    """The profile's first sample alone: whether a profile that was kept still holds."""
    length = _length(max_model_len)
    return _sample(target, pool or _own_pool(target, length, length), Step(1, 1, length), clock)


def _length(max_model_len: int) -> int:
    """Of the sequence of most samples."""
    return min(max_model_len, CONTEXT + max(ROWS))


def by_rows(samples: Iterable[Sample]) -> list[tuple[int, float]]:
    """(rows, seconds) of one sequence at the shortest context: the stairs, as measured."""
    first: dict[int, float] = {}
    for sample in sorted(samples, key=lambda s: (s.rows, s.sequences, s.context)):
        first.setdefault(sample.rows, sample.seconds)
    return list(first.items())


def _beside(length: int, long: int, max_num_seqs: int) -> Iterable[Step]:
    """Where only sequences or only context differ from a step that was looked at: neither slope
    depends on the other."""
    spread = next((n for n in SPREAD if n <= max_num_seqs and 2 * n <= length), 1)
    if spread > 1:
        yield Step(spread, 16 // spread, length // spread)
    if long >= 2 * length:
        yield Step(1, 1, long)
    if spread > 1:
        yield Step(spread, 1, length // spread)


def _own_pool(target: Executor, length: int, long: int) -> KVPool:
    info = target.info
    fits = long * row_bytes(info.spec, info.dtype, target.feature_dim) <= ROOM_BYTES
    blocks = -(-(long if fits else length) // BLOCK)
    blocks = max(blocks, *(n * -(-(length // n) // BLOCK) for n in SPREAD))
    return KVPool(
        info.spec, blocks, BLOCK, info.dtype, target.device, target.feature_dim, max(SPREAD)
    )


def _sample(target: Executor, pool: KVPool, step: Step, clock: Callable[[], float]) -> Sample:
    tables = _tables(target, pool, step)
    for table in tables:
        pool.pretend(table, step.length - step.rows)
    batch = _batch(target, tables, step)
    target.forward(batch, pool)  # pages and buffers are touched for the first time
    took_s = min(_timed(target, batch, pool, clock) for _ in range(2))
    return Sample(step.total_rows, took_s, step.sequences, step.sequences * step.length)


def _tables(target: Executor, pool: KVPool, step: Step) -> list[BlockTable]:
    """The first blocks and places, dealt out."""
    tables: list[BlockTable] = []
    each = step.blocks(pool) // step.sequences
    for number in range(step.sequences):
        table = BlockTable(pool.block_size, target.device)
        table.place = number
        table.extend(list(range(number * each, (number + 1) * each)))
        tables.append(table)
    return tables


def _batch(target: Executor, tables: Sequence[BlockTable], step: Step) -> StepBatch:
    rows, device, start = step.total_rows, target.device, step.length - step.rows
    return StepBatch(
        ids=torch.arange(rows, device=device)[None] % target.info.vocab_size,
        positions=torch.arange(start, step.length, device=device).repeat(step.sequences)[None],
        slots=torch.cat([table.slots(start, step.length) for table in tables]),
        keep=torch.arange(rows, device=device),
        spans=tuple(
            AttentionSpan(i * step.rows, (i + 1) * step.rows, step.length, table)
            for i, table in enumerate(tables)
        ),
    )


def _timed(target: Executor, batch: StepBatch, pool: KVPool, clock: Callable[[], float]) -> float:
    began = clock()
    logits = target.forward(batch, pool)
    if logits.is_cuda:
        torch.cuda.synchronize()
    return max(clock() - began, 1e-9)  # a clock may be too coarse to see it
