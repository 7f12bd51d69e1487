"""Prompt lookup: what followed the last n tokens the last time they were written.

Sources: prompt lookup decoding (Saxena, 2023); vLLM's `ngram` method for the parameter names.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from actors.contracts import Commit, DrafterInfo, DraftRequest, OpenSession, Proposal, SessionKey
from actors.drafters.config import DrafterConfig
from actors.drafters.sessions import SessionTable, room

_PRIME = (1 << 61) - 1


class NgramIndex:
    """Where each n-gram, shortest <= n <= longest, was last followed by something.

    Keys are polynomial hashes of the last n tokens, so a token costs the same at any n and any
    length of text; a hit is compared token by token. An n-gram is entered when its next token
    comes, so the text's own suffix is never found in it.
    """

    def __init__(self, shortest: int, longest: int, base: int) -> None:
        self.tokens: list[int] = []
        self._base = base
        self._prefix = [0]  # _prefix[i]: hash of tokens[:i]
        self._lengths = [(n, pow(base, n, _PRIME)) for n in range(longest, shortest - 1, -1)]
        self._last: list[dict[int, int]] = [{} for _ in self._lengths]

    @property
    def length(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """O(longest - shortest + 1) a token."""
        prefix, base = self._prefix, self._base
        for token in tokens:
            end = len(self.tokens)
            for (n, power), last in zip(self._lengths, self._last, strict=True):
                if n <= end:
                    last[(prefix[end] - prefix[end - n] * power) % _PRIME] = end
            self.tokens.append(token)
            prefix.append((prefix[end] * base + token + 1) % _PRIME)

    def lookup(self, count: int) -> tuple[int, ...]:
        """`count` tokens that followed the latest earlier occurrence of the longest suffix that
        has one, or none at all. Where the occurrence runs into the text's end, the copy goes on
        into itself: a text with a period is continued with it."""
        tokens, end = self.tokens, len(self.tokens)
        for (n, power), last in zip(self._lengths, self._last, strict=True):
            if n > end:
                continue
            at = last.get((self._prefix[end] - self._prefix[end - n] * power) % _PRIME)
            if at is not None and tokens[at - n : at] == tokens[end - n :]:
                period = end - at
                return tuple(tokens[at + i % period] for i in range(count))
        return ()


class NgramDrafter:
    """`info.vocab_size` is 0: what it proposes was in the session's own text."""

    def __init__(self, config: DrafterConfig) -> None:
        self._config = config
        # Not known to clients, so none can aim for collisions; no result depends on it.
        self._base = secrets.randbelow(_PRIME - (1 << 32)) + (1 << 32)
        self.sessions: SessionTable[NgramIndex] = SessionTable()
        self._info = DrafterInfo(
            "ngram",
            f"{config.prompt_lookup_min}-{config.prompt_lookup_max}",
            max_block=config.num_speculative_tokens,
            max_ahead=config.max_ahead,
            max_context=config.max_context,
        )

    @property
    def info(self) -> DrafterInfo:
        return self._info

    def open(self, sessions: Sequence[OpenSession]) -> None:
        for opened in sessions:
            index = NgramIndex(
                self._config.prompt_lookup_min, self._config.prompt_lookup_max, self._base
            )
            index.extend(opened.tokens)
            self.sessions.put(opened.key, index)

    def observe(self, commits: Sequence[Commit]) -> None:
        self.sessions.observe(commits)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        info = self._info
        return [
            Proposal(
                request.key,
                index.length,
                index.lookup(room(request.depth, index.length, info)),
            )
            for request, index in self.sessions.pairs(requests)
        ]

    def close(self, key: SessionKey) -> None:
        self.sessions.pop(key)
