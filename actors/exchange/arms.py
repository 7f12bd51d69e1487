"""Several ways to draft behind one port: a request's blocks come from the one that is asked.

Each arm is a port of its own, a *part*; parts know nothing of one another. A part has a request's
session from the first time that it is asked, and is told of the text when it is asked: whatever
others were asked meanwhile, it gets every token once and in order, with the features of its own
taps. One that is not asked any more is closed after a while, so a request holds what drafting it
takes and no more (law L3).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from actors.contracts import Gathered, PortCommit, SessionView
from actors.exchange.arms_part import Part
from actors.exchange.arms_view import Columns, PartView
from actors.exchange.contain import contained, contained_gather
from actors.exchange.link import Endpoint
from actors.exchange.pool import RemotePort
from actors.exchange.status import LinkRecord
from policies.choice import Arm

log = logging.getLogger(__name__)

IDLE_TOKENS = 512
"""What a request writes without asking a part until its session there is closed."""
MOST_UNTOLD = 256
"""Tokens after which a part is told unasked: no message grows without end."""

Ask = tuple[int, tuple[Arm, int] | None]
"""`depth` and `shadow` of a `PortCommit`."""


@dataclass(slots=True)
class _Known:
    """What a part has of a request: its first `told` tokens. asked: how many there were when it was
    last asked for something new."""

    view: PartView
    told: int
    asked: int


@dataclass(slots=True)
class _Session:
    """One request. arm: whose blocks it uses. owed: evidence that was asked for and is still to
    come; it is asked for again with each commit, for a part may have a prompt to read first."""

    view: SessionView
    arm: Part
    on: dict[Part, _Known] = field(default_factory=dict)
    owed: dict[Part, tuple[Arm, int]] = field(default_factory=dict)


class ArmsPort:
    """Implements `actors.contracts.DraftPort` over parts of one arm each, the first the default.
    `set_endpoints` and `status` may be called from any thread.

    Raises ValueError unless there is exactly one part of each mechanism and placement.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = tuple(parts)
        self._by_arm = {(part.mechanism, part.remote): part for part in self.parts}
        if not self.parts or len(self._by_arm) < len(self.parts):
            raise ValueError(f"one part of each kind is wanted: {[part.name for part in parts]}")
        self._taps = tuple(dict.fromkeys(tap for part in self.parts for tap in part.port.taps))
        self._columns = {part: Columns.among(part.port.taps, self._taps) for part in self.parts}
        self._sessions: dict[str, _Session] = {}
        self._recent: Part | None = None
        self._strangers: set[str] = set()

    @property
    def taps(self) -> tuple[int, ...]:
        return self._taps

    @property
    def arms(self) -> tuple[Arm, ...]:
        return tuple(arm for part in self.parts for arm in part.arms)

    def set_endpoints(self, endpoints: Sequence[Endpoint]) -> None:
        """The drafters there are now; each part gets those of its mechanism."""
        remote = {part.mechanism: part.port for part in self.parts if part.remote}
        of = {e.name: e.mechanism if e.mechanism in remote else "" for e in endpoints}
        for mechanism, port in remote.items():
            if isinstance(port, RemotePort):
                port.set_endpoints([e for e in endpoints if of[e.name] == mechanism])
        for endpoint in endpoints:
            if of[endpoint.name] not in remote and endpoint.name not in self._strangers:
                self._strangers.add(endpoint.name)
                log.warning("%s drafts by %r: not asked", endpoint.name, endpoint.mechanism)

    def status(self) -> list[LinkRecord]:
        return [record for part in self.parts for record in part.port.status()]

    # -- the engine's thread ----------------------------------------------------------------

    @contained
    def open(self, view: SessionView) -> None:
        """On the part that was asked last, for whomever: it is likely to be asked here too."""
        self.close(view.request_id, "opened again")
        recent = self._recent
        part = recent if recent is not None and recent.arms else self._first()
        session = self._sessions[view.request_id] = _Session(view, part)
        self._open(session, part, len(view.tokens))

    @contained
    def prefilled(self, request_id: str, rows: int) -> None:
        session = self._sessions.get(request_id)
        for part in session.on if session is not None else ():
            part.did(partial(part.port.prefilled, request_id, rows))

    @contained
    def commit(self, commits: Sequence[PortCommit]) -> None:
        news: dict[Part, list[PortCommit]] = {part: [] for part in self.parts}
        for commit in commits:
            session = self._sessions.get(commit.request_id)
            if session is not None:
                for part, ask in self._hearers(session, commit).items():
                    news[part].append(self._news(session, part, commit, ask))
        for part, told in news.items():
            if told and not part.did(partial(part.port.commit, told)):
                for commit in told:  # how much of it the part has taken is not known
                    self._close(self._sessions[commit.request_id], part, "fault")

    @contained_gather
    def gather(self, wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
        """In turn, each with the wait that its own rows are worth: first what is drafted here, for
        the others' blocks are on their way meanwhile, then the parts of most rows."""
        rows: dict[Part, dict[str, int]] = {part: {} for part in self.parts}
        missing: dict[str, str] = {}
        for request_id, depth in wanted.items():
            session = self._sessions.get(request_id)
            if session is None:
                missing[request_id] = "no-drafter"
            else:
                rows[session.arm][request_id] = depth
        united = Gathered(missing=missing)
        for part in sorted(self.parts, key=lambda part: (part.remote, -len(rows[part]))):
            gathered = part.gather(rows[part], worth_s)
            united = _united(united, gathered)
            for request_id in (*gathered.shadows, *gathered.judged):
                session = self._sessions.get(request_id)
                if session is not None:
                    session.owed.pop(part, None)
        return united

    @contained
    def close(self, request_id: str, reason: str) -> None:
        session = self._sessions.pop(request_id, None)
        if session is not None:
            for part in list(session.on):
                self._close(session, part, reason)

    @contained
    def shutdown(self) -> None:
        self._sessions = {}
        for part in self.parts:
            part.did(part.port.shutdown)

    # -- inside -----------------------------------------------------------------------------

    def _first(self) -> Part:
        """The default: the first that is up."""
        return next((part for part in self.parts if part.arms), self.parts[0])

    def _named(self, arm: Arm | None) -> Part | None:
        if arm is None:
            return None
        part = self._by_arm.get((arm.mechanism, arm.remote))
        return part or self._by_arm.get(("", arm.remote))

    def _hearers(self, session: _Session, commit: PortCommit) -> dict[Part, Ask]:
        """Who is told of this commit, and what is asked of them. Those that have not been asked
        for long lose the session, but for the one in use."""
        end = commit.from_len + len(commit.tokens)
        asks: dict[Part, Ask] = {}
        if commit.depth > 0:
            part = session.arm = self._recent = self._named(commit.arm) or self._first()
            session.owed.pop(part, None)
            asks[part] = commit.depth, None
        if commit.shadow is not None:
            other = self._named(commit.shadow[0])
            if other is not None and other not in asks:
                session.owed[other] = commit.shadow
                asks[other] = 0, commit.shadow
        for part in asks:
            if (known := session.on.get(part)) is not None:
                known.asked = end
        if len(session.on) > 1 or session.owed or not asks:
            self._others(session, end, asks)
        return asks

    def _others(self, session: _Session, end: int, asks: dict[Part, Ask]) -> None:
        """Of those that this commit does not ask: who is told all the same, and who goes."""
        for part, known in list(session.on.items()):
            if part is not session.arm and end - known.asked > IDLE_TOKENS:
                self._close(session, part, "idle")
        for part, shadow in session.owed.items():
            asks.setdefault(part, (0, shadow))
        quiet = not asks
        for part, known in session.on.items():
            if quiet or end - known.told > MOST_UNTOLD:
                asks.setdefault(part, (0, None))

    def _news(self, session: _Session, part: Part, commit: PortCommit, ask: Ask) -> PortCommit:
        """The commit for a part that may have been told less: all tokens since then."""
        known = session.on.get(part) or self._open(session, part, commit.from_len)
        start, end = commit.from_len, commit.from_len + len(commit.tokens)
        tokens = commit.tokens
        if known.told < start:
            start = known.told
            tokens = tuple(session.view.tokens[start:end])
        known.told = end
        depth, shadow = ask
        return PortCommit(commit.request_id, commit.round, start, tokens, depth, None, shadow)

    def _open(self, session: _Session, part: Part, length: int) -> _Known:
        view = PartView(session.view, self._columns[part], first=length)
        known = session.on[part] = _Known(view, told=length, asked=length)
        part.did(partial(part.port.open, view))
        view.first = None
        return known

    def _close(self, session: _Session, part: Part, reason: str) -> None:
        session.on.pop(part, None)
        session.owed.pop(part, None)
        part.did(partial(part.port.close, session.view.request_id, reason))


def _united(one: Gathered, other: Gathered) -> Gathered:
    return Gathered(
        one.drafts | other.drafts,
        one.missing | other.missing,
        one.waited_s + other.waited_s,
        one.overtaken | other.overtaken,
        one.shadows | other.shadows,
        one.judged | other.judged,
    )
