"""Paged key/value memory: a pool of blocks, and the tensors behind it.

Ownership: the allocator hands block ids out and takes them back; a sequence owns its ids from
admission to finish, preemption or abort (law L3). A token at index i of a sequence lives in slot
blocks[i // block_size] * block_size + i % block_size of every layer.
"""

from __future__ import annotations

import heapq

import torch

from actors.engine.state import PagedKV


class BlockAllocator:
    """Free blocks as a heap: the lowest ids first, so that young pools stay contiguous."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks))
        self._taken = [False] * num_blocks

    @property
    def free(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> list[int] | None:
        """`count` block ids, or None (and nothing taken) when there are not as many."""
        if count > len(self._free):
            return None
        blocks = [heapq.heappop(self._free) for _ in range(count)]
        for block in blocks:
            self._taken[block] = True
        return blocks

    def release(self, blocks: list[int]) -> None:
        """Give blocks back. A block that is not taken is a bug and raises ValueError."""
        for block in blocks:
            if not self._taken[block]:
                raise ValueError(f"block {block} was given back twice")
            self._taken[block] = False
            heapq.heappush(self._free, block)


class KVPool:
    """The tensors: per layer keys and values [slots, kv_heads, head_dim]; with taps also one
    feature row a slot [slots, taps * hidden] in bf16, kept with the KV it belongs to."""

    def __init__(
        self,
        spec: tuple[PagedKV, ...],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: str,
        feature_dim: int = 0,
    ) -> None:
        self.spec = spec
        self.block_size = block_size
        self.num_slots = num_blocks * block_size
        self.keys = [self._empty(layer, dtype, device) for layer in spec]
        self.values = [self._empty(layer, dtype, device) for layer in spec]
        self.features = (
            torch.empty(self.num_slots, feature_dim, dtype=torch.bfloat16, device=device)
            if feature_dim
            else None
        )

    def _empty(self, layer: PagedKV, dtype: torch.dtype, device: str) -> torch.Tensor:
        # Not zeroed: no row is read before it is written, and on a CPU the memory then costs
        # nothing until its slots are used.
        shape = (self.num_slots, layer.kv_heads, layer.head_dim)
        return torch.empty(shape, dtype=dtype, device=device)


class BlockTable:
    """One sequence's blocks and their slots as an index tensor, rebuilt only when it grows."""

    def __init__(self, block_size: int, device: str) -> None:
        self.block_size = block_size
        self.blocks: list[int] = []
        self._device = device
        self._slots = torch.empty(0, dtype=torch.long, device=device)
        self._run: int | None = None  # first slot when all blocks follow one another

    @property
    def capacity(self) -> int:
        """Tokens that fit into the blocks held."""
        return len(self.blocks) * self.block_size

    def missing(self, length: int) -> int:
        """Blocks still needed for `length` tokens."""
        return max(0, -(-length // self.block_size) - len(self.blocks))

    def extend(self, blocks: list[int]) -> None:
        self.blocks.extend(blocks)
        first = torch.tensor(self.blocks, dtype=torch.long, device=self._device) * self.block_size
        offsets = torch.arange(self.block_size, device=self._device)
        self._slots = (first[:, None] + offsets).flatten()
        contiguous = all(b == self.blocks[0] + i for i, b in enumerate(self.blocks))
        self._run = self.blocks[0] * self.block_size if contiguous and self.blocks else None

    def clear(self) -> list[int]:
        """Forget and return the blocks."""
        blocks, self.blocks = self.blocks, []
        self._slots = self._slots[:0]
        self._run = None
        return blocks

    def slots(self, start: int, stop: int) -> torch.Tensor:
        """Slots of tokens start … stop-1, int64 [stop - start]."""
        return self._slots[start:stop]

    def read(self, pool: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        """Rows start … stop-1 of a pool tensor; a view when the blocks are contiguous."""
        if self._run is not None:
            return pool[self._run + start : self._run + stop]
        return pool[self._slots[start:stop]]
