"""What the test drafters share: committed tokens per session, checked for gaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from actors.contracts import (
    Commit,
    DrafterError,
    DrafterInfo,
    DraftRequest,
    OpenSession,
    Proposal,
    SessionKey,
)
from actors.sampling.params import SamplingParams

NextToken = Callable[[Sequence[int], SamplingParams], int]
"""(committed prefix and drafts so far, parameters) -> the token the target writes next."""


@dataclass(slots=True)
class Session:
    """`rounds` counts commits."""

    key: SessionKey
    tokens: list[int]
    sampling: SamplingParams
    prompt_len: int
    rounds: int = 0


class TokenDrafter:
    """A drafter that keeps token lists and writes blocks with `block`."""

    mechanism = "test"

    def __init__(self, vocab_size: int = 0, max_block: int = 32) -> None:
        self.sessions: dict[SessionKey, Session] = {}
        self.vocab_size = vocab_size
        self.max_block = max_block
        self.calls = 0  # of propose

    @property
    def info(self) -> DrafterInfo:
        return DrafterInfo(
            self.mechanism, "test", vocab_size=self.vocab_size, max_block=self.max_block
        )

    def open(self, sessions: Sequence[OpenSession]) -> None:
        for s in sessions:
            prompt_len = s.prompt_len or len(s.tokens)
            self.sessions[s.key] = Session(s.key, list(s.tokens), s.sampling, prompt_len)

    def observe(self, commits: Sequence[Commit]) -> None:
        gaps = []
        for commit in commits:
            session = self.session(commit.key)
            if commit.from_len != len(session.tokens):
                gaps.append(commit.key)
                continue
            session.tokens.extend(commit.tokens)
            session.rounds += 1
        if gaps:
            raise DrafterError("from_len is not the session's length", gaps)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        self.calls += 1
        found = [(r, self.session(r.key)) for r in requests]
        return [
            Proposal(r.key, len(s.tokens), tuple(self.block(s, min(r.depth, self.max_block))))
            for r, s in found
        ]

    def close(self, key: SessionKey) -> None:
        self.sessions.pop(key, None)

    def session(self, key: SessionKey) -> Session:
        if key not in self.sessions:
            raise DrafterError(f"no session {key}", [key])
        return self.sessions[key]

    def block(self, session: Session, depth: int) -> Sequence[int]:
        """At most `depth` tokens after the session's newest."""
        raise AssertionError("a test drafter defines block()")
