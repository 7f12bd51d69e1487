"""What every drafter that reads the target's features does alike: sessions, catching up, cold.

Law of a session with n committed tokens: it has been given feature rows 0 … n-2, each once. Rows
0 … done-1 are absorbed into the mechanism's own state; the rest wait in `rows`. A mechanism says
how committed rows are absorbed and how blocks are drafted from there; both for many sessions at
once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from actors.contracts import (
    Commit,
    DrafterError,
    DrafterInfo,
    DraftRequest,
    OpenSession,
    Proposal,
    SessionKey,
)
from actors.drafters.allot import allot
from actors.drafters.external_kv import SessionKV
from actors.drafters.sessions import SessionTable, room
from actors.drafters.threads import torch_threads
from actors.sampling.law import TokenLaw
from actors.sampling.params import SamplingParams

WARM_ROWS = 64
"""So many rows may wait for the next block; more are absorbed when they come."""


@dataclass(slots=True)
class FeatureSession:
    """last: the mechanism's state at row done-1, [hidden], where it needs one to go on."""

    key: SessionKey
    tokens: list[int]
    sampling: SamplingParams
    prompt_len: int
    kv: SessionKV = field(default_factory=SessionKV)
    done: int = 0
    rows: list[torch.Tensor] = field(default_factory=list)  # each [n, F]
    last: torch.Tensor | None = None

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def waiting(self) -> int:
        """Feature rows that are there and not absorbed."""
        return self.length - 1 - self.done

    def extend(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)

    def take(self, count: int) -> torch.Tensor:
        """The next `count` waiting rows, [count, F]."""
        held = self.rows[0] if len(self.rows) == 1 else torch.cat(self.rows)
        self.rows = [held[count:]] if held.shape[0] > count else []
        return held[:count]


@dataclass(frozen=True, slots=True)
class Absorb:
    """Rows done … done + n - 1 of one session: features [n, F] and, for each row j, the committed
    token j + 1."""

    session: FeatureSession
    features: torch.Tensor
    next_tokens: list[int]


@dataclass(slots=True)
class Chain:
    """A block in the making, on a session all of whose rows are absorbed. drawn: its tokens are
    drawn from laws of their own, which go with them, not with the shared noise."""

    session: FeatureSession
    depth: int
    drawn: bool = False
    drafts: list[int] = field(default_factory=list)
    laws: list[TokenLaw] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    ended: bool = False

    @property
    def open(self) -> bool:
        return not self.ended and len(self.drafts) < self.depth

    def proposal(self) -> Proposal:
        session = self.session
        return Proposal(
            session.key,
            session.length,
            tuple(self.drafts),
            tuple(self.confidence) or None,
            cold=session.waiting > 0 and self.depth > 0,
            law=tuple(self.laws) or None,
        )


class FeatureDrafter(ABC):
    """Implements `actors.contracts.Drafter`; a mechanism adds `absorb` and `draft`.

    threads: those that torch's own operations may take; None leaves them alone."""

    threads: int | None = None

    def __init__(self, info: DrafterInfo, feature_dim: int, prefill_rows: int) -> None:
        self._info = info
        self._feature_dim = feature_dim
        self._prefill_rows = prefill_rows
        self.sessions: SessionTable[FeatureSession] = SessionTable()

    def takes_projected(self, digest: str, width: int) -> None:
        """From now on features come through the first map: rows [n, width] of that digest."""
        if digest:
            self._info = replace(self._info, projection=digest)
            self._feature_dim = width

    def fused(self, rows: torch.Tensor) -> torch.Tensor:
        """Features as they come [n, feature_dim] -> through the first map, whoever makes it."""
        return rows if self._info.projection else self.first_map(rows)

    def first_map(self, rows: torch.Tensor) -> torch.Tensor:
        """[n, taps · target hidden] -> what the layers read; a mechanism may have none."""
        return rows

    @abstractmethod
    def absorb(self, parts: Sequence[Absorb]) -> None:
        """Take committed rows into the sessions' state (`kv`, `last`), replacing whatever blocks
        left behind row `done`. `done` still counts the rows before; the caller moves it."""

    @abstractmethod
    def draft(self, chains: Sequence[Chain]) -> None:
        """Fill `drafts` of each chain, at most `depth`. May raise DrafterError naming sessions."""

    @property
    def info(self) -> DrafterInfo:
        return self._info

    @property
    def feature_dim(self) -> int:
        """The width of a feature row: of all taps together."""
        return self._feature_dim

    # -- the contract ---------------------------------------------------------------------------

    def open(self, sessions: Sequence[OpenSession]) -> None:
        """Raises DrafterError for those whose features do not fit their tokens."""
        bad: list[SessionKey] = []
        for s in sessions:
            session = FeatureSession(
                s.key, list(s.tokens), s.sampling, s.prompt_len or len(s.tokens)
            )
            if self._given(session, s.features, len(s.tokens) - 1):
                self.sessions.put(s.key, session)
            else:
                bad.append(s.key)
        self._absorb([s for s in self.sessions if s.waiting > WARM_ROWS])
        if bad:
            raise DrafterError(f"{len(bad)} sessions came without their features", bad)

    def observe(self, commits: Sequence[Commit]) -> None:
        sound: list[Commit] = []
        bad: list[SessionKey] = []
        known = {session.key: session for session in self.sessions}
        for c in commits:
            session = known.get(c.key)
            if session is None or c.from_len != session.length:
                sound.append(c)  # the table names it
            elif self._given(session, c.features, len(c.tokens)):
                sound.append(c)
            else:
                bad.append(c.key)
        try:
            self.sessions.observe(sound)
        except DrafterError as error:
            raise DrafterError(str(error), (*error.keys, *bad)) from error
        self._absorb([s for s in self.sessions if s.waiting > WARM_ROWS])
        if bad:
            raise DrafterError(f"{len(bad)} commits came without their features", bad)

    @torch.inference_mode()
    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        """A session with rows still to absorb proposes nothing yet and is cold."""
        info, chains = self._info, list[Chain]()
        for request, session in self.sessions.pairs(requests):
            depth = room(request.depth, session.length, info)
            drawn = info.gives_law and not session.sampling.greedy
            chains.append(Chain(session, depth, drawn))
        asked = [chain for chain in chains if chain.open]
        with torch_threads(self.threads):
            self._absorb([chain.session for chain in asked])
            ready = [chain for chain in asked if not chain.session.waiting and chain.session.done]
            if ready:
                self.draft(ready)
        return [chain.proposal() for chain in chains]

    def close(self, key: SessionKey) -> None:
        self.sessions.pop(key)

    # -- inside -----------------------------------------------------------------------------

    def _given(self, session: FeatureSession, rows: torch.Tensor | None, count: int) -> bool:
        """Keep the rows that come with new tokens; False when they are not what was promised."""
        if count <= 0:
            return count == 0
        if rows is None or rows.shape != (count, self._feature_dim):
            return False
        session.rows.append(rows)
        return True

    @torch.inference_mode()
    def _absorb(self, sessions: Sequence[FeatureSession]) -> None:
        """A part of what waits: sessions that run come first, long prompts move on."""
        limit = self._info.max_context or 1 << 62
        due = [s for s in sessions if s.waiting and s.length <= limit]
        counts = allot([s.waiting for s in due], 2 * (self._info.max_block + 1), self._prefill_rows)
        parts = [
            Absorb(s, s.take(n), s.tokens[s.done + 1 : s.done + 1 + n])
            for s, n in zip(due, counts, strict=True)
            if n
        ]
        if parts:
            with torch_threads(self.threads):
                self.absorb(parts)
        for part in parts:
            part.session.done += len(part.next_tokens)
