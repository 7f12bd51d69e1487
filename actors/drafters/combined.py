"""Suffix decoding first, where it finds more than another drafter would get; else that drafter.

Both see everything that is committed, so either can go on at any time. Both are judged by every
block they have made, used or not: what the target wrote next says how much of it was right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from actors.contracts import (
    MADE_UP,
    Commit,
    Drafter,
    DrafterError,
    DrafterInfo,
    DraftRequest,
    OpenSession,
    Proposal,
    SessionKey,
)
from policies import acceptance, combine
from policies.acceptance import Acceptance


@dataclass(slots=True)
class Record:
    """One session. at: the committed length its blocks are for. found, made: suffix's block and
    the other drafter's, None where it was not asked; suffix: whose goes out, None undecided."""

    counts: Acceptance = field(default_factory=Acceptance)
    at: int = -1
    found: Proposal | None = None
    made: Proposal | None = None
    suffix: bool | None = None


class CombinedDrafter:
    """`other` is any drafter; what it needs (features, taps) the combination needs."""

    def __init__(self, other: Drafter, suffix: Drafter) -> None:
        self._other, self._suffix = other, suffix
        self.sessions: dict[SessionKey, Record] = {}
        self._counts = Acceptance()  # of all sessions' blocks of `other`
        self._trust = combine.Trust()
        first, second = other.info, suffix.info
        self._info = replace(
            first,
            mechanism=f"{first.mechanism}+{second.mechanism}",
            max_block=max(first.max_block, second.max_block),
            max_ahead=max(first.max_ahead, second.max_ahead),
        )

    @property
    def info(self) -> DrafterInfo:
        return self._info

    @property
    def feature_dim(self) -> int:
        """The other's: suffix decoding reads tokens alone."""
        return getattr(self._other, "feature_dim", 0)

    # -- the contract ---------------------------------------------------------------------------

    def open(self, sessions: Sequence[OpenSession]) -> None:
        for session in sessions:
            self.sessions.pop(session.key, None)
        _both(lambda: self._suffix.open(sessions), lambda: self._other.open(sessions))

    def observe(self, commits: Sequence[Commit]) -> None:
        for commit in commits:
            record = self.sessions.get(commit.key)
            if record is not None:
                self._judge(record, commit)
        _both(lambda: self._suffix.observe(commits), lambda: self._other.observe(commits))

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        """Raises DrafterError naming sessions; asking again for the others is safe."""
        found = self._suffix.propose(requests)
        ask: list[DraftRequest] = []
        for request, block in zip(requests, found, strict=True):
            if not self._record(request, block).suffix:
                ask.append(request)
        made = {p.key: p for p in (self._other.propose(ask) if ask else ())}
        return [self._pick(block, made.get(block.key)) for block in found]

    def close(self, key: SessionKey) -> None:
        self.sessions.pop(key, None)
        self._suffix.close(key)
        self._other.close(key)

    # -- inside -----------------------------------------------------------------------------

    def _record(self, request: DraftRequest, found: Proposal) -> Record:
        """With the drafter of its next block chosen; a block that is asked for again, further, has
        the one it had."""
        record = self.sessions.setdefault(request.key, Record())
        if record.at != found.base_len:
            record.at, record.made, record.suffix = found.base_len, None, None
        record.found = found
        if record.suffix is None and found.tokens:
            depth = min(request.depth, self._other.info.max_block)
            record.suffix = combine.takes_promise(
                combine.promise(found.confidence or ()),
                self._trust,
                acceptance.survival(record.counts, depth, self._counts),
            )
        return record

    def _pick(self, found: Proposal, made: Proposal | None) -> Proposal:
        record = self.sessions[found.key]
        if made is None:
            return found
        if made.cold and found.tokens:
            return found
        record.made = made
        return made

    def _judge(self, record: Record, commit: Commit) -> None:
        """Count what was right of the blocks made for this place."""
        if record.at != commit.from_len or commit.key.verifier == MADE_UP:
            return
        if record.made is not None and record.made.tokens:
            drafted, right = _decided(record.made.tokens, commit.tokens)
            record.counts = acceptance.verified(record.counts, drafted, right)
            self._counts = acceptance.verified(self._counts, drafted, right)
        if record.found is not None and record.found.tokens:
            drafted, right = _decided(record.found.tokens, commit.tokens)
            promised = combine.promise((record.found.confidence or ())[:drafted])
            self._trust = combine.learned(self._trust, promised, right)
        record.at, record.found, record.made, record.suffix = -1, None, None, None


def _decided(block: Sequence[int], written: Sequence[int]) -> tuple[int, int]:
    """(tokens of a block whose fate is known, how many of them were right): all of them once one
    was wrong, else as many as were written."""
    right = 0
    for ours, theirs in zip(block, written, strict=False):
        if ours != theirs:
            return len(block), right
        right += 1
    return right, right


def _both(*parts: Callable[[], None]) -> None:
    """Run all parts, then raise what any of them raised, naming all their sessions."""
    raised: list[DrafterError] = []
    for part in parts:
        try:
            part()
        except DrafterError as error:
            raised.append(error)
    if raised:
        keys = dict.fromkeys(key for error in raised for key in error.keys)
        raise DrafterError("; ".join(map(str, raised)), tuple(keys)) from raised[0]
