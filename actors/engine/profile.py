"""What a forward costs by its rows, measured before serving (DESIGN §9)."""

from __future__ import annotations

import time

import torch

from actors.engine.batch import AttentionSpan, StepBatch
from actors.engine.executor import Executor
from actors.engine.kv import BlockTable, KVPool

ROWS = (1, 16, 2, 4, 8, 32, 3, 6, 12, 24, 64, 48)
"""In the order of their worth. The first two are always looked at: they give the slope."""
CONTEXT = 192
ENOUGH_S = 0.6
"""Once so much time has gone, fewer numbers of rows are looked at."""


def profile(
    target: Executor, max_model_len: int, pool: KVPool | None = None
) -> list[tuple[int, float]]:
    """(rows, seconds) of forwards over one sequence that attends to some context, the better of
    two each. Its cache is its own, or the first blocks of a `pool` that
    nobody uses yet: ranks of a target have theirs and know no other."""
    info, length = target.info, min(max_model_len, CONTEXT + max(ROWS))
    if pool is None:
        pool = KVPool(info.spec, 1, length, info.dtype, target.device, target.feature_dim)
    table = BlockTable(pool.block_size, target.device)
    table.extend(list(range(-(-length // pool.block_size))))
    samples: list[tuple[int, float]] = []
    spent_s = 0.0
    for rows in ROWS:
        if rows > length:
            continue
        if len(samples) >= 2 and spent_s > ENOUGH_S:
            break
        pool.pretend(table, length - rows)
        batch = _batch(target, table, rows, length)
        target.forward(batch, pool)  # pages and buffers are touched for the first time
        took_s = min(_timed(target, batch, pool) for _ in range(2))
        samples.append((rows, took_s))
        spent_s += 3 * took_s
    return sorted(samples)


def _batch(target: Executor, table: BlockTable, rows: int, length: int) -> StepBatch:
    start, device = length - rows, target.device
    return StepBatch(
        ids=torch.arange(rows, device=device)[None] % target.info.vocab_size,
        positions=torch.arange(start, length, device=device)[None],
        slots=table.slots(start, length),
        keep=torch.arange(rows, device=device),
        spans=(AttentionSpan(0, rows, length, table),),
    )


def _timed(target: Executor, batch: StepBatch, pool: KVPool) -> float:
    began = time.perf_counter()
    logits = target.forward(batch, pool)
    if logits.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - began
