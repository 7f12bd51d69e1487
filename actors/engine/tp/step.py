"""A step as bytes: all a rank needs, and nothing that it could decide (pitfalls S46).

One vector of little-endian int32, whose first four numbers fix the shape of the rest:

    rows, keeps, spans, blocks
    ids [rows]   positions [rows]   slots [rows]   keep [keeps]
    start, stop, kv_stop, number of blocks: [spans, 4]
    block ids of all spans in turn: [blocks]
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from actors.engine.batch import AttentionSpan, StepBatch
from actors.engine.errors import EngineError
from actors.engine.kv import BlockTable

_HEAD = 4
_SPAN = 4

Int32s = npt.NDArray[np.int32]


def encode_step(batch: StepBatch) -> bytes:
    """The batch as rank 0 packed it."""
    tables = [span.table.blocks for span in batch.spans]
    rows, keeps = batch.ids.numel(), batch.keep.numel()
    head = [rows, keeps, len(tables), sum(map(len, tables))]
    spans = [
        (span.start, span.stop, span.kv_stop, len(blocks))
        for span, blocks in zip(batch.spans, tables, strict=True)
    ]
    tensors = (batch.ids, batch.positions, batch.slots, batch.keep)
    parts = [
        np.array(head),
        *(tensor.flatten().cpu().numpy() for tensor in tensors),
        np.array(spans).reshape(-1),
        *(np.array(blocks) for blocks in tables),
    ]
    return np.concatenate(parts).astype("<i4").tobytes()


class StepDecoder:
    """Bytes back to the same batch. Block tables of the step before are used again while their
    blocks are the same: most sequences grow a block only now and then."""

    def __init__(self, block_size: int, device: str) -> None:
        self._block_size = block_size
        self._device = device
        self._tables: dict[bytes, BlockTable] = {}

    def decode(self, payload: bytes) -> StepBatch:
        """Raises EngineError when the payload is not of the shape its head tells."""
        numbers = np.frombuffer(payload, dtype="<i4")
        head = numbers[:_HEAD].tolist()
        if len(head) < _HEAD or numbers.size != _size(head):
            raise EngineError(f"a step of {numbers.size} numbers with the head {head}")
        rows, keeps, spans, blocks = head
        cuts = np.cumsum([_HEAD, rows, rows, rows, keeps, _SPAN * spans])
        ids, positions, slots, keep, described, rest = np.split(numbers, cuts)[1:]
        return StepBatch(
            ids=self._tensor(ids)[None],
            positions=self._tensor(positions)[None],
            slots=self._tensor(slots),
            keep=self._tensor(keep),
            spans=self._spans(described.reshape(-1, _SPAN), rest[:blocks]),
        )

    def _tensor(self, numbers: Int32s) -> torch.Tensor:
        return torch.from_numpy(numbers.astype(np.int64)).to(self._device)

    def _spans(self, described: Int32s, blocks: Int32s) -> tuple[AttentionSpan, ...]:
        kept, self._tables = self._tables, {}
        spans, taken = [], 0
        for start, stop, kv_stop, count in described.tolist():
            own = blocks[taken : taken + count]
            taken += count
            key = own.tobytes()
            table = kept.get(key)
            if table is None:
                table = BlockTable(self._block_size, self._device)
                table.extend(own.tolist())
            self._tables[key] = table
            spans.append(AttentionSpan(start, stop, kv_stop, table))
        return tuple(spans)


def _size(head: list[int]) -> int:
    rows, keeps, spans, blocks = head
    return _HEAD + 3 * rows + keeps + _SPAN * spans + blocks
