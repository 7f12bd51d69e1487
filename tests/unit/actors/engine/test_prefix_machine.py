"""Allocator and prefix cache against a plain model of both, under any order of calls.

The model keeps what each block holds, who holds it, and the order in which blocks were let go.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from actors.engine.kv import BlockAllocator
from actors.engine.prefix import PrefixCache, TokenChain

BLOCKS, SIZE = 10, 2
texts = st.lists(st.integers(0, 1), min_size=1, max_size=13)
owners = st.sampled_from([("", ""), ("a", ""), ("", "a"), ("a", "salt")])


@dataclass(eq=False)
class Holder:
    owner: tuple[str, str]
    tokens: list[int]
    chain: TokenChain
    blocks: list[int] = field(default_factory=list)
    published: int = 0

    def content(self, index: int) -> tuple[object, ...]:
        """Everything the rows of its block depend on."""
        return (self.owner, *self.tokens[: (index + 1) * SIZE])


class PrefixMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.allocator = BlockAllocator(BLOCKS)
        self.cache = PrefixCache(self.allocator, SIZE)
        self.holders: list[Holder] = []
        self.content: dict[int, tuple[object, ...]] = {}  # of named blocks
        self.idle: list[int] = []  # in the order they were let go
        self.evicted: list[int] = []
        forget = self.allocator.on_evict

        def on_evict(block: int) -> None:
            self.evicted.append(block)
            forget(block)

        self.allocator.on_evict = on_evict

    def held(self) -> list[int]:
        return [block for holder in self.holders for block in holder.blocks]

    def allocate(self, count: int) -> list[int] | None:
        held, free = set(self.held()), BLOCKS - len(set(self.held())) - len(self.idle)
        self.evicted.clear()
        blocks = self.allocator.allocate(count)
        assert (blocks is None) == (count > free + len(self.idle))
        if blocks is None:
            assert not self.evicted
            return None
        oldest = self.idle[: max(0, count - free)]
        assert self.evicted == oldest  # the least recently used, and no more than were needed
        assert not held & set(blocks)
        assert len(set(blocks)) == count
        for block in oldest:
            self.idle.remove(block)
            del self.content[block]
        return blocks

    @rule(tokens=texts, owner=owners)
    def open(self, tokens: list[int], owner: tuple[str, str]) -> None:
        holder = Holder(owner, tokens, self.cache.chain(*owner))
        shared = self.cache.match(holder.chain, tokens)
        assert len(shared) * SIZE < len(tokens)
        for i, block in enumerate(shared):
            assert self.content[block] == holder.content(i)
        # The longest known prefix, and never one token less.
        if (len(shared) + 1) * SIZE < len(tokens):
            assert holder.content(len(shared)) not in self.content.values()
        self.allocator.share(shared)
        for block in shared:
            if block in self.idle:
                self.idle.remove(block)
        holder.blocks, holder.published = list(shared), len(shared)
        self.holders.append(holder)
        fresh = self.allocate(-(-len(tokens) // SIZE) - len(shared))
        if fresh is None:
            self.let_go(holder)
        else:
            holder.blocks += fresh

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), token=st.integers(0, 1))
    def grow(self, data: st.DataObject, token: int) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        if len(holder.tokens) == len(holder.blocks) * SIZE:
            fresh = self.allocate(1)
            if fresh is None:
                return
            holder.blocks += fresh
        holder.tokens.append(token)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        full = (len(holder.tokens) - 1) // SIZE
        if full <= holder.published:
            return
        self.cache.publish(holder.chain, holder.tokens, holder.blocks, holder.published, full)
        for i in range(holder.published, full):
            if holder.content(i) not in self.content.values():
                self.content[holder.blocks[i]] = holder.content(i)
        holder.published = full

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), fails=st.booleans())
    def close(self, data: st.DataObject, fails: bool) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        if fails:
            self.cache.forget(holder.blocks)
            for block in holder.blocks:
                self.content.pop(block, None)
        self.let_go(holder)

    def let_go(self, holder: Holder) -> None:
        self.holders.remove(holder)
        self.allocator.release(holder.blocks)
        held = set(self.held())
        for block in reversed(holder.blocks):
            if block in self.content and block not in held:
                self.idle.append(block)

    @precondition(lambda self: len(set(self.held())) < BLOCKS)
    @rule(data=st.data())
    def misuse(self, data: st.DataObject) -> None:
        """What nobody holds cannot be given back, and what is free cannot be shared."""
        loose = sorted(set(range(BLOCKS)) - set(self.held()))
        block = data.draw(st.sampled_from(loose))
        with pytest.raises(ValueError, match="twice"):
            self.allocator.release([block])
        if block not in self.idle:
            with pytest.raises(ValueError, match="free"):
                self.allocator.share([block])

    @invariant()
    def nothing_is_lost_and_nothing_is_counted_twice(self) -> None:
        if not hasattr(self, "allocator"):
            return
        held = set(self.held())
        assert self.allocator.free == BLOCKS - len(held)
        assert self.allocator.idle == len(self.idle)
        assert len(self.cache) == len(self.content)
        assert not held & set(self.idle)
        assert set(self.idle) <= set(self.content)

    def teardown(self) -> None:
        for holder in list(self.holders):
            self.let_go(holder)
        assert self.allocator.free == BLOCKS


PrefixMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestAllocatorAndPrefixCache = PrefixMachine.TestCase
