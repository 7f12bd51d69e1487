"""The table of live sessions every drafter has: opened, grown without gaps, forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from actors.contracts import Commit, DrafterError, DrafterInfo, DraftRequest, SessionKey


class Growing(Protocol):
    """A session's state: a committed length and a way to grow."""

    @property
    def length(self) -> int: ...

    def extend(self, tokens: Sequence[int]) -> None: ...


S = TypeVar("S", bound=Growing)


class SessionTable(Generic[S]):
    """Sessions by key. Nothing of a session outlives `pop` (law L3, pitfalls S40)."""

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, S] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[S]:
        return iter(self._sessions.values())

    def put(self, key: SessionKey, session: S) -> None:
        """Open; a key that is open already starts anew."""
        self._sessions[key] = session

    def pop(self, key: SessionKey) -> S | None:
        return self._sessions.pop(key, None)

    def pairs(self, requests: Iterable[DraftRequest]) -> list[tuple[DraftRequest, S]]:
        """Each request with its session; raises DrafterError naming all unknown keys, before
        any work is done."""
        requests = list(requests)
        unknown = [r.key for r in requests if r.key not in self._sessions]
        if unknown:
            raise DrafterError(f"unknown session: {_names(unknown)}", unknown)
        return [(r, self._sessions[r.key]) for r in requests]

    def observe(self, commits: Iterable[Commit]) -> None:
        """Grow every sound session, then raise DrafterError naming those that are unknown or
        whose commit does not start at their length."""
        bad: list[SessionKey] = []
        for commit in commits:
            session = self._sessions.get(commit.key)
            if session is None or commit.from_len != session.length:
                bad.append(commit.key)
            else:
                session.extend(commit.tokens)
        if bad:
            raise DrafterError(f"unknown session or a gap before its commit: {_names(bad)}", bad)


def room(depth: int, length: int, info: DrafterInfo) -> int:
    """Tokens a chain may have: positions length … stay below max_context (0: no bound)."""
    depth = min(depth, max(info.max_block, info.max_ahead))
    return max(0, min(depth, info.max_context - length) if info.max_context else depth)


def _names(keys: Sequence[SessionKey]) -> str:
    shown = ", ".join(f"{k.verifier}/{k.request}#{k.epoch}" for k in keys[:4])
    return shown + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
