"""Suffix trees over finished responses: one a tenant, evicted first in first out.

An automaton cannot forget states, only counts. So once as much is dead as alive, new responses go
into a successor as well; when eviction has reached the successor's first response, everything
alive is in it and it takes over. Memory is flat, eviction exact, and no step is a rebuild.

Entering and evicting are cut into steps of one token, done a few at a time between rounds, so that
a long response's end never delays the drafts of others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from actors.drafters.suffix_index import Cursor, SuffixIndex

Tokens = tuple[int, ...]


class TenantTree:
    """Responses of one tenant. Changed only through `insert` and `evict`, one at a time."""

    def __init__(self, depth: int) -> None:
        self.index = SuffixIndex(depth)
        self.live: deque[Tokens] = deque()
        self._successor: SuffixIndex | None = None
        self._evictions_left = 0  # until the successor holds everything alive
        self._live_tokens = 0
        self._dead_tokens = 0

    @property
    def states(self) -> int:
        return self.index.states + (self._successor.states if self._successor else 0)

    def insert(self, tokens: Tokens) -> Iterator[None]:
        """Enter a response; a step a token."""
        if self._successor is None and self._dead_tokens >= max(1, self._live_tokens):
            self._successor = SuffixIndex(self.index.depth)
            self._evictions_left = len(self.live)
        self.live.append(tokens)
        self._live_tokens += len(tokens)
        targets = [(i, Cursor()) for i in (self.index, self._successor) if i is not None]
        for token in tokens:
            for index, cursor in targets:
                index.append(cursor, token)
            yield

    def evict(self) -> Iterator[None]:
        """Forget the oldest response; a step a token."""
        tokens = self.live.popleft()
        yield from self.index.retire(tokens)
        self._live_tokens -= len(tokens)
        self._dead_tokens += len(tokens)
        if self._successor is not None:
            self._evictions_left -= 1
            if self._evictions_left <= 0:
                self.index, self._successor = self._successor, None
                self._dead_tokens = 0


class SharedTrees:
    """All tenants' trees under one bound on requests and one on tokens; nothing crosses tenants."""

    def __init__(self, depth: int, max_requests: int, max_tokens: int) -> None:
        self._depth = depth
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._trees: dict[str, TenantTree] = {}
        self._order: deque[tuple[str, int]] = deque()  # (tenant, tokens) of what is kept
        self._tokens = 0
        self._jobs: deque[Iterator[None]] = deque()

    def __len__(self) -> int:
        """Responses kept or about to be."""
        return len(self._order)

    @property
    def tenants(self) -> int:
        return len(self._trees)

    @property
    def states(self) -> int:
        """Automaton states of all tenants: what memory is proportional to."""
        return sum(tree.states for tree in self._trees.values())

    def index(self, tenant: str) -> SuffixIndex | None:
        tree = self._trees.get(tenant)
        return tree.index if tree else None

    def add(self, tenant: str, tokens: Tokens) -> None:
        """Keep a finished response; the oldest ones of any tenant make room."""
        if not self._max_requests or not 0 < len(tokens) <= self._max_tokens:
            return
        self._order.append((tenant, len(tokens)))
        self._tokens += len(tokens)
        self._jobs.append(self._insert(tenant, tokens))
        while len(self._order) > self._max_requests or self._tokens > self._max_tokens:
            oldest, length = self._order.popleft()
            self._tokens -= length
            self._jobs.append(self._evict(oldest))

    def work(self, steps: int) -> None:
        """At most `steps` tokens of what is to be entered or evicted."""
        while self._jobs and steps > 0:
            done = sum(1 for _ in islice(self._jobs[0], steps))
            if done < steps:
                self._jobs.popleft()
            steps -= max(1, done)

    def _insert(self, tenant: str, tokens: Tokens) -> Iterator[None]:
        tree = self._trees.setdefault(tenant, TenantTree(self._depth))
        yield from tree.insert(tokens)

    def _evict(self, tenant: str) -> Iterator[None]:
        tree = self._trees[tenant]
        yield from tree.evict()
        if not tree.live:
            del self._trees[tenant]
