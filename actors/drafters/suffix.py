"""Suffix decoding: the most frequent continuation of the longest useful context, as long as it is
likely.

Source: SuffixDecoding, arXiv 2411.04975. A draft's length adapts: at most `factor` tokens for each
matched one, and no further than its probability stays above a bound; no match costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from actors.contracts import (
    MADE_UP,
    Commit,
    DrafterInfo,
    DraftRequest,
    OpenSession,
    Proposal,
    SessionKey,
)
from actors.drafters.config import DrafterConfig
from actors.drafters.sessions import SessionTable, room
from actors.drafters.suffix_index import Cursor, SuffixIndex
from actors.drafters.suffix_shared import SharedTrees

_IDLE_STEPS = 64  # shared-tree steps of one call beyond what keeps pace with the commits
_STEPS_PER_TOKEN = 4  # entering and evicting cost two; the rest catches up


@dataclass(frozen=True, slots=True)
class Guess:
    """confidence[i]: share of the context's occurrences that token i followed, given the ones
    before it, times n / (n + 1) for the n tokens before it that are alike: one that ends a long
    copy is seldom, one that ends a chance likeness is not. score: expected accepted tokens by the
    shares alone, the sum of their running products."""

    tokens: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """count: longest draft. factor: draft tokens for each matched one. min_prob: least running
    product at which a draft goes on."""

    count: int
    factor: float
    min_prob: float


def speculate(
    index: SuffixIndex, contexts: Iterable[tuple[int, int]], ends: Sequence[int], limits: Limits
) -> Guess:
    """The draft with the highest score; among equals that of the longest context.

    contexts: (state, matched tokens), longest first.
    """
    best = Guess()
    for state, matched in contexts:
        budget = min(limits.count, int(matched * limits.factor + 1e-6))
        if best.score >= budget:
            break  # a score is at most its budget, and budgets only shrink from here
        guess = _follow(index, state, matched, ends, budget, limits.min_prob)
        if guess.score > best.score:
            best = guess
    return best


def _follow(
    index: SuffixIndex,
    state: int,
    matched: int,
    ends: Sequence[int],
    budget: int,
    min_prob: float,
) -> Guess:
    tokens: list[int] = []
    confidence: list[float] = []
    product, score = 1.0, 0.0
    for token, share in index.walk(state, ends):
        product *= share
        if product < min_prob:
            break
        alike = matched + len(tokens)
        tokens.append(token)
        confidence.append(share * alike / (alike + 1))
        score += product
        if len(tokens) == budget:
            break
    return Guess(tuple(tokens), tuple(confidence), score)


class SuffixSession:
    """One request's text and its own tree over prompt and response."""

    def __init__(self, opened: OpenSession, depth: int) -> None:
        self.tenant = opened.tenant
        self.tokens: list[int] = []
        self.index = SuffixIndex(depth)
        self.cursor = Cursor()
        self.prompt_len = len(opened.tokens)
        self.extend(opened.tokens)

    @property
    def length(self) -> int:
        return len(self.tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.index.append(self.cursor, token)
        self.tokens.extend(tokens)

    def guess(self, limits: Limits) -> Guess:
        contexts = self.index.contexts(self.cursor)
        return speculate(self.index, contexts, self.cursor.tail, limits)


class SuffixDrafter:
    """`info.vocab_size` is 0: what it proposes was written by the target or its client before."""

    def __init__(self, config: DrafterConfig) -> None:
        self._config = config
        self._depth = config.suffix_decoding_max_tree_depth
        self.sessions: SessionTable[SuffixSession] = SessionTable()
        self.shared = SharedTrees(
            self._depth,
            config.suffix_decoding_max_cached_requests,
            config.suffix_decoding_max_cached_tokens,
        )
        self._info = DrafterInfo(
            "suffix",
            f"depth-{self._depth}",
            max_block=config.num_speculative_tokens,
            max_ahead=config.max_ahead,
            max_context=config.max_context,
        )

    @property
    def info(self) -> DrafterInfo:
        return self._info

    def open(self, sessions: Sequence[OpenSession]) -> None:
        for opened in sessions:
            self.sessions.put(opened.key, SuffixSession(opened, self._depth))
        self.shared.work(_IDLE_STEPS)

    def observe(self, commits: Sequence[Commit]) -> None:
        written = sum(len(commit.tokens) for commit in commits)
        self.shared.work(_IDLE_STEPS + _STEPS_PER_TOKEN * written)
        self.sessions.observe(commits)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        return [self._propose(r, session) for r, session in self.sessions.pairs(requests)]

    def _propose(self, request: DraftRequest, session: SuffixSession) -> Proposal:
        info, config = self._info, self._config
        limits = Limits(
            room(request.depth, session.length, info),
            config.suffix_decoding_max_spec_factor,
            config.suffix_decoding_min_token_prob,
        )
        guess = session.guess(limits)
        index = self.shared.index(session.tenant) if self._shares(session) else None
        if index is not None and guess.score < limits.count:
            other = speculate(index, index.match(session.tokens), (), limits)
            if other.score > guess.score:
                guess = other
        return Proposal(request.key, session.length, guess.tokens, guess.confidence)

    def _shares(self, session: SuffixSession) -> bool:
        return bool(session.tenant) or self._config.suffix_decoding_share_untenanted

    def close(self, key: SessionKey) -> None:
        """What the session wrote since it was opened goes into its tenant's shared tree."""
        session = self.sessions.pop(key)
        if session is not None and key.verifier != MADE_UP and self._shares(session):
            self.shared.add(session.tenant, tuple(session.tokens[session.prompt_len :]))
