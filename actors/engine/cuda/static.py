"""A forward whose every tensor has the same shape and place at each step, so that a graph may
replay it (DESIGN §8).

Each row is a query of its own with its own list of blocks; how much of them it sees is a number on
the device. Rows that only fill the shape up write into the pool's scratch slot and see nothing but
that: no live row is touched. What a row does not see is read from the scratch slot as well, since
memory that was never written may hold anything, and 0 times anything need not be 0.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from actors.engine.batch import StepBatch
from actors.engine.cuda.shapes import Shape
from actors.engine.kv import KVPool
from actors.engine.target import Target


class StaticForward:
    """The buffers of one shape over one pool. `load` fills them, `run` computes from nothing else.

    ids, positions: [1, rows]; slots, lengths: [rows]; tables: [rows, blocks]. layers: those that
    attended in the last run, in order.
    """

    def __init__(self, target: Target, pool: KVPool, shape: Shape) -> None:
        self.target, self.pool, self.shape = target, pool, shape
        rows, device = shape.rows, target.device
        self.ids = torch.zeros(1, rows, dtype=torch.long, device=device)
        self.positions = torch.zeros(1, rows, dtype=torch.long, device=device)
        self.slots = torch.zeros(rows, dtype=torch.long, device=device)
        self.lengths = torch.ones(rows, dtype=torch.long, device=device)
        self.tables = torch.zeros(shape, dtype=torch.long, device=device)
        pinned = device.startswith("cuda")
        self._host = torch.zeros(shape, dtype=torch.long, pin_memory=pinned)
        self._places = torch.arange(shape.blocks * pool.block_size, device=device)
        self._seen = self._mask = self._places
        self.layers: list[int] = []

    def load(self, batch: StepBatch) -> None:
        """The step's rows, then rows of padding: token 0 at position 0, in the scratch slot."""
        rows, scratch = batch.ids.shape[1], self.pool.scratch
        self.ids.zero_()[:, :rows] = batch.ids
        self.positions.zero_()[:, :rows] = batch.positions
        self.slots.fill_(scratch)[:rows] = batch.slots
        self.lengths.fill_(1)[:rows] = batch.positions[0] + 1
        self._host.fill_(scratch // self.pool.block_size)
        for span in batch.spans:
            blocks = torch.tensor(span.table.blocks[: self.shape.blocks])
            self._host[span.start : span.stop, : len(blocks)] = blocks
        self.tables.copy_(self._host, non_blocking=True)

    @torch.inference_mode()
    def run(self) -> torch.Tensor:
        """Logits [rows, vocab]; KV and features of all rows are in the pool."""
        size = self.pool.block_size
        slots = (self.tables[:, :, None] * size + self._places[:size]).flatten(1)
        visible = self._places < self.lengths[:, None]
        self._seen = torch.where(visible, slots, self.pool.scratch).flatten()
        self._mask = visible[:, None, None, :]
        self.layers = []
        return self.target.compute(self.ids, self.positions, self.slots, self, keep=0)

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float | None,
        window: int | None,
    ) -> torch.Tensor:
        """See `actors.engine.attention.Step`."""
        mask = self._mask
        if window:
            mask = mask & (self._places >= self.lengths[:, None, None, None] - window)
        out = F.scaled_dot_product_attention(
            query[0].transpose(0, 1)[:, :, None],
            self._read(self.pool.keys[layer], key),
            self._read(self.pool.values[layer], value),
            attn_mask=mask,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return out[None, :, :, 0]

    def _read(self, pool: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """Write the new rows; what each row may see, [rows, kv_heads, tokens, head_dim]."""
        pool.index_copy_(0, self.slots, new[0].transpose(0, 1))
        return pool[self._seen].view(self.shape.rows, -1, *pool.shape[1:]).transpose(1, 2)
