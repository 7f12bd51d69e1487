"""A block's name stands for its tokens, all that came before them, and whose they are."""

from __future__ import annotations

import pytest

from actors.engine.kv import BlockAllocator
from actors.engine.prefix import PrefixCache

TEXT = [5, 6, 7, 8, 9]


def make_cache(blocks: int = 8) -> tuple[BlockAllocator, PrefixCache]:
    allocator = BlockAllocator(blocks)
    return allocator, PrefixCache(allocator, 2)


def publish(
    allocator: BlockAllocator, cache: PrefixCache, tokens: list[int], tenant: str, salt: str
) -> list[int]:
    """Compute `tokens` once and let go of them; the blocks they are in."""
    blocks = allocator.allocate(-(-len(tokens) // 2))
    assert blocks is not None
    cache.publish(cache.chain(tenant, salt), tokens, blocks, 0, len(tokens) // 2)
    allocator.release(blocks)
    return blocks


def test_a_prefix_is_found_again_up_to_the_last_token_but_one() -> None:
    allocator, cache = make_cache()
    blocks = publish(allocator, cache, TEXT, "", "")
    for length, found in ((5, 2), (4, 1), (3, 1), (2, 0), (1, 0)):
        assert cache.match(cache.chain("", ""), TEXT[:length]) == blocks[:found]
    assert cache.match(cache.chain("", ""), [5, 6, 7, 0, 9]) == blocks[:1]
    assert cache.match(cache.chain("", ""), [0, *TEXT]) == []


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (("a", ""), ("", "")),
        (("a", ""), ("b", "")),
        (("", "a"), ("", "b")),
        (("", "a"), ("a", "")),
        (("ab", "c"), ("a", "bc")),
        (("1:a", ""), ("", "1:a")),
    ],
)
def test_another_tenant_or_salt_finds_nothing(
    theirs: tuple[str, str], ours: tuple[str, str]
) -> None:
    allocator, cache = make_cache()
    blocks = publish(allocator, cache, TEXT, *theirs)
    assert cache.match(cache.chain(*theirs), TEXT) == blocks[:2]
    assert cache.match(cache.chain(*ours), TEXT) == []


def test_names_differ_between_processes_so_that_nobody_can_prepare_a_collision() -> None:
    one, other = (make_cache()[1].chain("", "").names(TEXT, 2) for _ in range(2))
    assert one != other


def test_the_tail_of_a_prefix_is_given_up_before_its_head() -> None:
    allocator, cache = make_cache(blocks=3)
    blocks = publish(allocator, cache, [*TEXT, 1], "", "")
    assert allocator.allocate(1) == [blocks[2]]
    assert cache.match(cache.chain("", ""), [*TEXT, 1, 2]) == blocks[:2]


def test_what_was_forgotten_while_held_comes_back_free_and_nameless() -> None:
    allocator, cache = make_cache(blocks=2)
    blocks = allocator.allocate(2)
    assert blocks is not None
    cache.publish(cache.chain("", ""), TEXT, blocks, 0, 2)
    cache.forget(blocks)
    allocator.release(blocks)
    assert (allocator.free, allocator.idle, len(cache)) == (2, 0, 0)
