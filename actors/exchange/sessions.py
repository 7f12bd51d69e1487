"""The drafter's table of sessions: what is open, how long it is, what waits for what.

Bookkeeping only: no drafter, no network. One thread owns it. A message that cannot be taken raises
`Quarantine`; a message of an older epoch is dropped without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from actors.contracts import Commit, DrafterInfo, OpenSession, SessionKey
from actors.exchange.limits import Limits
from actors.exchange.sink import Sink, Trace
from pilotfish.v1 import exchange_pb2 as pb

if TYPE_CHECKING:
    import torch


class Quarantine(Exception):
    """One session is out, with the wire's code."""

    def __init__(self, code: pb.FaultCode, detail: str) -> None:
        super().__init__(detail)
        self.code = code


@dataclass(slots=True)
class Session:
    """length: tokens the drafter holds or is about to. opening: not yet on the drafter.
    awaited: feature rows still to come before it can be (None: it needs none).
    held_bytes: features kept until then."""

    key: SessionKey
    stream: Sink
    length: int
    opening: OpenSession | None
    awaited: int | None
    trace: Trace
    seen_s: float
    asked_ns: int = 0
    width: int = 0
    held_bytes: int = 0
    rows: list[torch.Tensor] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """All features are there; of an empty prefix at least their width must be known."""
        return self.awaited is None or (self.awaited == 0 and self.width > 0)

    def opened(self) -> OpenSession:
        """The record for the drafter; the session is on it from now on."""
        opening = self.opening
        if opening is None:
            raise ValueError("the session is already on the drafter")
        if self.awaited is not None:
            import torch

            features = torch.cat(self.rows) if self.rows else torch.empty(0, self.width).bfloat16()
            opening = replace(opening, features=features)
        self.opening, self.awaited, self.rows = None, None, []
        return opening

    def merged(self) -> Commit | None:
        """Every commit taken since the last call, as one."""
        if not self.commits:
            return None
        commits, self.commits = self.commits, []
        return merge(commits)


def merge(commits: Sequence[Commit]) -> Commit:
    """Contiguous commits of one session as one; its depth and round are the newest's."""
    first, last = commits[0], commits[-1]
    if len(commits) == 1:
        return first
    parts = [c.features for c in commits if c.features is not None]
    return Commit(
        last.key,
        last.round,
        first.from_len,
        tuple(token for c in commits for token in c.tokens),
        _joined(parts) if len(parts) == len(commits) else None,
        last.depth,
    )


class SessionTable:
    """At most one session a request: the newest epoch."""

    def __init__(self, info: DrafterInfo, limits: Limits) -> None:
        self._info = info
        self._limits = limits
        self._sessions: dict[tuple[str, str], Session] = {}
        self._dirty: dict[SessionKey, Session] = {}
        self._feature_bytes = 0
        self._tokens = 0  # of all sessions

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, key: SessionKey) -> Session | None:
        """The session of exactly this epoch."""
        session = self._sessions.get((key.verifier, key.request))
        return session if session is not None and session.key == key else None

    def of_stream(self, stream: Sink) -> list[Session]:
        return [s for s in self._sessions.values() if s.stream is stream]

    def idle(self, before_s: float) -> list[Session]:
        return [s for s in self._sessions.values() if s.seen_s < before_s]

    def all(self) -> list[Session]:
        return list(self._sessions.values())

    def ready(self) -> list[Session]:
        """Sessions with something to tell the drafter, in the order it came; asks once."""
        taken = [s for s in self._dirty.values() if s.opening is None or s.complete]
        for session in taken:
            del self._dirty[session.key]
            self._release_features(session)
        return taken

    # -- messages ---------------------------------------------------------------------------

    def take_open(
        self, opening: OpenSession, *, follow: bool, stream: Sink, trace: Trace, now_s: float
    ) -> Session | None:
        """Returns the session of an older epoch that this one replaces."""
        key = opening.key
        old = self._sessions.get((key.verifier, key.request))
        if old is not None and old.key.epoch > key.epoch:
            return None
        if old is not None and old.key.epoch == key.epoch:
            raise Quarantine(pb.FAULT_INVALID, "key: this epoch is already open")
        if old is None and len(self._sessions) >= self._limits.max_sessions:
            raise Quarantine(pb.FAULT_OVERLOADED, f"{self._limits.max_sessions} sessions are open")
        if self._info.needs_features and not follow:
            raise Quarantine(pb.FAULT_INVALID, "features_follow: this drafter needs features")
        self._check_memory(len(opening.tokens) - (old.length if old is not None else 0))
        if old is not None:
            self.remove(old)
        awaited = len(opening.tokens) - 1 if self._info.needs_features else None
        session = Session(key, stream, len(opening.tokens), opening, awaited, trace, now_s)
        self._sessions[key.verifier, key.request] = session
        self._dirty[key] = session
        self._tokens += session.length
        return old

    def take_features(
        self, key: SessionKey, from_row: int, rows: torch.Tensor, now_s: float
    ) -> None:
        session = self._live(key)
        if session is None or not self._info.needs_features:
            return
        if session.opening is None or session.awaited is None:
            raise Quarantine(pb.FAULT_GAP, "from_row: all rows of this session have come")
        have = len(session.opening.tokens) - 1 - session.awaited
        if from_row != have or rows.shape[0] > session.awaited:
            raise Quarantine(
                pb.FAULT_GAP,
                f"from_row: rows {from_row} … {from_row + rows.shape[0] - 1} where "
                f"{have} … {have + session.awaited - 1} are to come",
            )
        self._check_width(session, rows)
        self._hold(session, rows)
        session.rows.append(rows)
        session.awaited -= rows.shape[0]
        session.seen_s = now_s

    def take_commit(self, commit: Commit, *, now_s: float, asked_ns: int) -> None:
        session = self._live(commit.key)
        if session is None:
            return
        if commit.from_len != session.length:
            raise Quarantine(
                pb.FAULT_GAP, f"from_len: {commit.from_len} where {session.length} are committed"
            )
        if session.length + len(commit.tokens) > self._limits.max_tokens:
            raise Quarantine(pb.FAULT_INVALID, f"tokens: over {self._limits.max_tokens}")
        self._check_memory(len(commit.tokens))
        if not self._info.needs_features:
            if commit.features is not None:
                commit = replace(commit, features=None)
        elif commit.features is None:
            raise Quarantine(pb.FAULT_INVALID, "features: this drafter needs them")
        else:
            self._check_width(session, commit.features)
            if session.opening is not None:
                self._hold(session, commit.features)
        session.commits.append(commit)
        session.length += len(commit.tokens)
        self._tokens += len(commit.tokens)
        session.seen_s, session.asked_ns = now_s, asked_ns
        self._dirty[commit.key] = session

    def remove(self, session: Session) -> bool:
        """Forget it. True when the drafter has it, so it must be closed there as well."""
        place = (session.key.verifier, session.key.request)
        if self._sessions.get(place) is not session:
            return False
        del self._sessions[place]
        self._tokens -= session.length
        self._dirty.pop(session.key, None)
        self._release_features(session)
        return session.opening is None

    # -- checks -----------------------------------------------------------------------------

    def _live(self, key: SessionKey) -> Session | None:
        """None for a message of an older epoch."""
        session = self._sessions.get((key.verifier, key.request))
        if session is None or session.key.epoch < key.epoch:
            raise Quarantine(pb.FAULT_UNKNOWN_SESSION, "key: no such session is open")
        return session if session.key == key else None

    def _check_memory(self, more: int) -> None:
        """A drafter never runs out of memory in mid-flight: who would not fit goes elsewhere."""
        most = self._limits.max_session_bytes
        if most and (self._tokens + more) * self._info.token_bytes > most:
            raise Quarantine(
                pb.FAULT_OVERLOADED, f"sessions keep {self._tokens} tokens in {most} bytes"
            )

    def _check_width(self, session: Session, rows: torch.Tensor) -> None:
        width = rows.shape[1]
        taps = 0 if self._info.projection else len(self._info.taps)
        if (session.width and width != session.width) or (taps and width % taps):
            expected = session.width or f"a multiple of {taps}"
            raise Quarantine(pb.FAULT_INVALID, f"features: {width} columns, not {expected}")
        session.width = width

    def _hold(self, session: Session, rows: torch.Tensor) -> None:
        """Features of sessions that are still opening are bounded together."""
        size = rows.numel() * rows.element_size()
        if self._feature_bytes + size > self._limits.max_feature_bytes:
            raise Quarantine(
                pb.FAULT_OVERLOADED, f"over {self._limits.max_feature_bytes} bytes of features"
            )
        self._feature_bytes += size
        session.held_bytes += size

    def _release_features(self, session: Session) -> None:
        self._feature_bytes -= session.held_bytes
        session.held_bytes = 0


def _joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    import torch

    return torch.cat(list(parts))
