"""The allocator hands out and takes back; the table maps tokens to slots."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from actors.engine.kv import BlockAllocator, BlockTable, Places


@given(st.lists(st.integers(0, 6), max_size=40), st.randoms())
def test_blocks_are_never_owned_twice_and_all_come_back(sizes: list[int], rng) -> None:
    allocator = BlockAllocator(16)
    held: list[list[int]] = []
    for size in sizes:
        blocks = allocator.allocate(size)
        if blocks is None:
            assert size > allocator.free
            if held:
                allocator.release(held.pop(rng.randrange(len(held))))
        else:
            held.append(blocks)
        owned = [b for blocks in held for b in blocks]
        assert len(owned) == len(set(owned)) == 16 - allocator.free
    for blocks in held:
        allocator.release(blocks)
    assert allocator.free == 16


def test_giving_a_block_back_twice_is_an_error() -> None:
    allocator = BlockAllocator(2)
    blocks = allocator.allocate(1)
    assert blocks is not None
    allocator.release(blocks)
    with pytest.raises(ValueError, match="twice"):
        allocator.release(blocks)


@pytest.mark.parametrize("blocks", [[0, 1, 2], [5, 2, 7]])
def test_a_read_gives_the_same_rows_contiguous_or_not(blocks: list[int]) -> None:
    pool = torch.arange(8 * 4 * 2).view(32, 2)
    table = BlockTable(4, "cpu")
    table.extend(blocks)
    slots = [b * 4 + i for b in blocks for i in range(4)]
    for start, stop in ((0, 12), (3, 9), (11, 12), (4, 4)):
        assert table.slots(start, stop).tolist() == slots[start:stop]
        assert torch.equal(table.read(pool, start, stop), pool[slots[start:stop]])


def test_missing_blocks_are_counted_from_the_length() -> None:
    table = BlockTable(4, "cpu")
    assert [table.missing(n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
    table.extend([3])
    assert [table.missing(n) for n in (4, 5, 12)] == [0, 1, 2]
    assert table.clear() == [3]
    assert table.capacity == 0


def test_places_are_ones_own_and_come_back() -> None:
    places = Places(3)
    assert [places.take() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="all 3 places"):
        places.take()
    places.give_back(1)
    assert places.take() == 1
    places.give_back(2)
    places.give_back(0)
    assert places.free == 2
    with pytest.raises(ValueError, match="twice"):
        places.give_back(0)
