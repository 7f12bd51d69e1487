"""A step survives its way to another rank, and carries everything (pitfalls S46)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from actors.engine.batch import AttentionSpan, StepBatch
from actors.engine.errors import EngineError
from actors.engine.kv import BlockTable
from actors.engine.tp.step import StepDecoder, encode_step

BLOCK_SIZE = 4


@st.composite
def batches(draw: st.DrawFn) -> StepBatch:
    """Segments of any length over blocks in any order, as `pack` lays them out."""
    ids, positions, keep = [], [], []
    slots, spans = [], []
    for lengths in draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=5)):
        before, rows = lengths
        table = BlockTable(BLOCK_SIZE, "cpu")
        table.extend(draw(st.permutations(range(40)))[: -(-(before + rows) // BLOCK_SIZE)])
        start = len(ids)
        ids += draw(st.lists(st.integers(0, 2**31 - 1), min_size=rows, max_size=rows))
        positions += range(before, before + rows)
        slots.append(table.slots(before, before + rows))
        spans.append(AttentionSpan(start, len(ids), before + rows, table))
        keep += range(start + draw(st.integers(0, rows)), len(ids))
    return StepBatch(
        ids=torch.tensor([ids], dtype=torch.long),
        positions=torch.tensor([positions], dtype=torch.long),
        slots=torch.cat(slots) if slots else torch.empty(0, dtype=torch.long),
        keep=torch.tensor(keep, dtype=torch.long),
        spans=tuple(spans),
    )


@given(batches())
def test_a_decoded_step_is_the_step_that_was_encoded(batch: StepBatch) -> None:
    decoded = StepDecoder(BLOCK_SIZE, "cpu").decode(encode_step(batch))
    for name in ("ids", "positions", "slots", "keep"):
        ours, theirs = getattr(decoded, name), getattr(batch, name)
        assert ours.shape == theirs.shape
        assert ours.dtype == torch.long
        assert torch.equal(ours, theirs)
    assert len(decoded.spans) == len(batch.spans)
    for ours, theirs in zip(decoded.spans, batch.spans, strict=True):
        assert (ours.start, ours.stop, ours.kv_stop) == (theirs.start, theirs.stop, theirs.kv_stop)
        assert ours.table.blocks == theirs.table.blocks
        assert torch.equal(ours.table.slots(0, ours.kv_stop), theirs.table.slots(0, ours.kv_stop))


def one_row(blocks: list[int], position: int) -> StepBatch:
    table = BlockTable(BLOCK_SIZE, "cpu")
    table.extend(blocks)
    return StepBatch(
        ids=torch.tensor([[7]]),
        positions=torch.tensor([[position]]),
        slots=table.slots(position, position + 1),
        keep=torch.tensor([0]),
        spans=(AttentionSpan(0, 1, position + 1, table),),
    )


def test_a_table_is_built_again_only_when_its_blocks_change() -> None:
    decoder = StepDecoder(BLOCK_SIZE, "cpu")
    first, second, grown = (
        decoder.decode(encode_step(one_row(blocks, position))).spans[0].table
        for blocks, position in (([3], 1), ([3], 2), ([3, 9], 4))
    )
    assert first is second
    assert grown is not second
    assert grown.blocks == [3, 9]


def test_a_step_of_another_shape_than_its_head_tells_is_refused() -> None:
    whole = encode_step(one_row([3], 1))
    head = np.frombuffer(whole, dtype="<i4").copy()
    head[0] += 1
    for broken in (whole[:-4], whole + bytes(4), whole[:8], b"", head.tobytes()):
        with pytest.raises(EngineError, match="a step of"):
            StepDecoder(BLOCK_SIZE, "cpu").decode(broken)
