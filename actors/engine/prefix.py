"""The prefix cache: which blocks already hold the KV of which tokens.

A full block is named by a hash of everything its rows depend on: the tokens of the block, the name
of the block before it, and at the root the tenant and the client's cache_salt. Equal names mean
equal prefixes within one tenant and salt, and nobody else can find them: neither text nor timing
leaks across tenants. The root is keyed by a secret of this process, so that no client can prepare
two texts with one name.

Hidden states that drafters need lie in the same slots as the KV (`KVPool.features`), so whoever
shares a block has its features as well.

Idea: hash chains over full blocks as in vLLM's automatic prefix caching.
"""

from __future__ import annotations

import hashlib
import secrets
from array import array
from collections.abc import Sequence

from actors.engine.kv import BlockAllocator

_BYTES = 16


class TokenChain:
    """Names of the full blocks of one growing token list, each computed once."""

    def __init__(self, root: bytes, block_size: int) -> None:
        self._root = root
        self._block_size = block_size
        self._names: list[bytes] = []

    def names(self, tokens: Sequence[int], count: int) -> Sequence[bytes]:
        """Of the first `count` blocks; tokens must only ever have grown since the last call."""
        size = self._block_size
        for i in range(len(self._names), count):
            before = self._names[-1] if self._names else self._root
            block = array("Q", tokens[i * size : (i + 1) * size]).tobytes()
            self._names.append(hashlib.blake2b(before + block, digest_size=_BYTES).digest())
        return self._names[:count]


class PrefixCache:
    """Names of blocks in one allocator, both ways.

    Invariant: a named block's rows are the KV of exactly the tokens its name stands for, and are
    never written again while it is named. Blocks of equal content that were computed side by side
    have one name between them: the first one's.
    """

    def __init__(self, allocator: BlockAllocator, block_size: int) -> None:
        self._allocator = allocator
        self._block_size = block_size
        self._secret = secrets.token_bytes(32)
        self._blocks: dict[bytes, int] = {}
        self._names: dict[int, bytes] = {}
        allocator.on_evict = self._forget_one

    def __len__(self) -> int:
        return len(self._blocks)

    def chain(self, tenant: str, salt: str) -> TokenChain:
        """The names of a request's blocks, apart for each (tenant, salt)."""
        owner = f"{len(tenant)}:{tenant}{salt}".encode()
        root = hashlib.blake2b(owner, key=self._secret, digest_size=_BYTES).digest()
        return TokenChain(root, self._block_size)

    def match(self, chain: TokenChain, tokens: Sequence[int]) -> list[int]:
        """Blocks that hold the longest known prefix of `tokens`. At least the newest token stays
        out: its row has to be computed for its logits."""
        found: list[int] = []
        for name in chain.names(tokens, (len(tokens) - 1) // self._block_size):
            block = self._blocks.get(name)
            if block is None:
                break
            found.append(block)
        return found

    def publish(
        self, chain: TokenChain, tokens: Sequence[int], blocks: Sequence[int], start: int, stop: int
    ) -> None:
        """Blocks start … stop-1 of a sequence are full of committed rows: others may share them."""
        names = chain.names(tokens, stop)
        for i in range(start, stop):
            if names[i] not in self._blocks:
                self._blocks[names[i]] = blocks[i]
                self._names[blocks[i]] = names[i]
                self._allocator.name(blocks[i])

    def forget(self, blocks: Sequence[int]) -> None:
        """Nobody shares these any more: their rows may be wrong."""
        for block in blocks:
            if block in self._names:
                self._forget_one(block)
                self._allocator.unname(block)

    def _forget_one(self, block: int) -> None:
        del self._blocks[self._names.pop(block)]
