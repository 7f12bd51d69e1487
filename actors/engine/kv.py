"""The memory of running requests: a pool of blocks for keys and values, places for recurrent state.

Ownership: the allocator counts who holds each block; a sequence holds its ids from admission to
finish, preemption or abort (law L3). A token at index i of a sequence lives in slot
blocks[i // block_size] * block_size + i % block_size of every attention layer. Recurrent layers
keep one state for each place, and a running sequence has one place (`actors.engine.hybrid`).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch

from actors.engine.hybrid.memory import LayerStates
from actors.engine.state import Layer, PagedKV


class BlockAllocator:
    """Blocks with reference counts. Each is in one of three states:

    held: by one or more sequences. idle: by none, but its content is named, so the next sequence
    with the same prefix may share it; given up least recently used first, and only when no other
    block is left. free: neither; the lowest ids go first, so that young pools stay contiguous.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.evictions = 0
        self.on_evict: Callable[[int], None] = lambda block: None
        self._free = list(range(num_blocks))
        self._holders = [0] * num_blocks
        self._named = [False] * num_blocks
        self._idle: OrderedDict[int, None] = OrderedDict()  # least recently used first

    @property
    def free(self) -> int:
        """Blocks that can be had now, the idle ones among them."""
        return len(self._free) + len(self._idle)

    @property
    def idle(self) -> int:
        """Blocks that nobody holds and whose content can still be shared."""
        return len(self._idle)

    def count_idle(self, blocks: Sequence[int]) -> int:
        """How many of these nobody holds: sharing them takes so many from `free`."""
        return sum(block in self._idle for block in blocks)

    def allocate(self, count: int) -> list[int] | None:
        """`count` block ids with one holder each, or None (and nothing taken) when there are not
        as many. Idle blocks lose their content and their name, told to `on_evict`."""
        if count > self.free:
            return None
        for _ in range(count - len(self._free)):
            self._evict()
        blocks = [heapq.heappop(self._free) for _ in range(count)]
        for block in blocks:
            self._holders[block] = 1
        return blocks

    def share(self, blocks: Sequence[int]) -> None:
        """One more holder of each. A free block has nothing to share: ValueError."""
        for block in blocks:
            if not self._holders[block] and block not in self._idle:
                raise ValueError(f"block {block} is free and cannot be shared")
            self._idle.pop(block, None)
            self._holders[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """One holder less of each, the last block first: a prefix is worth nothing without its
        head, so heads are the last to be evicted. A block that nobody holds is a bug: ValueError.
        """
        for block in reversed(blocks):
            if not self._holders[block]:
                raise ValueError(f"block {block} was given back twice")
            self._holders[block] -= 1
            if not self._holders[block]:
                self._put_down(block)

    def name(self, block: int) -> None:
        """The content is worth keeping when its holders are gone. Only of a held block."""
        if not self._holders[block]:
            raise ValueError(f"block {block} is held by nobody and cannot be named")
        self._named[block] = True

    def unname(self, block: int) -> None:
        """The content is worth nothing any more."""
        self._named[block] = False
        if block in self._idle:
            del self._idle[block]
            heapq.heappush(self._free, block)

    def _put_down(self, block: int) -> None:
        if self._named[block]:
            self._idle[block] = None
        else:
            heapq.heappush(self._free, block)

    def _evict(self) -> None:
        block, _ = self._idle.popitem(last=False)
        self._named[block] = False
        heapq.heappush(self._free, block)
        self.evictions += 1
        self.on_evict(block)


class Places:
    """Numbers 0 … count-1, one for each running sequence; the lowest goes first."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(count))

    @property
    def free(self) -> int:
        """Places that nobody has."""
        return len(self._free)

    def take(self) -> int:
        """A place of one's own. None is left: a bug, ValueError."""
        if not self._free:
            raise ValueError(f"all {self.count} places are taken")
        return heapq.heappop(self._free)

    def give_back(self, place: int) -> None:
        """A place that is free already is a bug: ValueError."""
        if place in self._free:
            raise ValueError(f"place {place} was given back twice")
        heapq.heappush(self._free, place)


class KVPool:
    """The tensors: keys and values of each attention layer [slots, kv_heads, head_dim], the states
    of each recurrent layer by its number, at `places` places; with taps also one feature row a
    slot [slots, taps * hidden] in bf16, kept with the KV it belongs to.

    scratch: one more slot, of no block, for rows that only fill up a fixed shape; it is always
    finite.
    """

    def __init__(
        self,
        spec: tuple[Layer, ...],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: str,
        feature_dim: int = 0,
        places: int = 1,
    ) -> None:
        self.spec = spec
        self.block_size = block_size
        self.num_slots = self.scratch = num_blocks * block_size
        self.keys = [self._empty(layer, dtype, device) for layer in spec]
        self.values = [self._empty(layer, dtype, device) for layer in spec]
        self.states = {
            number: LayerStates(layer, places, dtype, device)
            for number, layer in enumerate(spec)
            if not isinstance(layer, PagedKV)
        }
        self.features = (
            torch.empty(self.num_slots + 1, feature_dim, dtype=torch.bfloat16, device=device)
            if feature_dim
            else None
        )

    def _empty(self, layer: Layer, dtype: torch.dtype, device: str) -> torch.Tensor:
        # Not zeroed: no row is read before it is written, and on a CPU the memory then costs
        # nothing until its slots are used.
        if not isinstance(layer, PagedKV):
            return torch.empty(0, dtype=dtype, device=device)
        shape = (self.num_slots + 1, layer.kv_heads, layer.head_dim)
        tensor = torch.empty(shape, dtype=dtype, device=device)
        tensor[self.scratch] = 0
        return tensor

    def pretend(self, table: BlockTable, length: int) -> None:
        """The sequence of `table` passes for one whose first `length` rows were computed, all of
        them zeros: for who measures times and not texts."""
        for tensor in (*self.keys, *self.values):
            if tensor.numel():
                tensor[table.slots(0, length)] = 0
        for states in self.states.values():
            states.clear(table.place, length)


class BlockTable:
    """One sequence's blocks and their slots as an index tensor, rebuilt only when it grows; and
    `place`, where its recurrent state is, which is its own while it runs."""

    def __init__(self, block_size: int, device: str) -> None:
        self.block_size = block_size
        self.blocks: list[int] = []
        self.place = 0
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
