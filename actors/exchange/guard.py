"""A drafter behind a wall: whatever it does wrong stays with the sessions it did it to (law L2).

Every call says which sessions failed instead of raising. A failed session is closed on the drafter
before the call returns, so that nothing of it is left there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from actors.contracts import (
    Commit,
    Drafter,
    DrafterError,
    DraftRequest,
    OpenSession,
    Proposal,
    SessionKey,
)
from actors.sampling.law import TokenLaw, problem

Failures = dict[SessionKey, str]
"""Why each of these sessions failed."""

CAREFUL_CALLS = 32
"""So many calls are made session by session after a batch failed without naming anyone."""

_Item = TypeVar("_Item", OpenSession, Commit)


CONFIDENCE = "one finite number a token"


def confides(confidence: Sequence[float], count: int) -> bool:
    """Whether a drafter says so of each of its tokens how sure it is."""
    return len(confidence) == count and all(map(math.isfinite, confidence))


class GuardedDrafter:
    """One thread calls it, as it does the drafter. vocab_size: 0 takes the drafter's own.
    max_law: ids in the law of one token; 0 is no bound."""

    def __init__(self, drafter: Drafter, vocab_size: int = 0, max_law: int = 0) -> None:
        self._drafter = drafter
        self.info = drafter.info
        self._vocab_size = vocab_size or self.info.vocab_size or 1 << 32
        self._max_law = max_law or 1 << 32
        self._careful = 0

    def open(self, sessions: Sequence[OpenSession]) -> Failures:
        return self._each_alone_if_needed(self._drafter.open, sessions, retry=True)

    def observe(self, commits: Sequence[Commit]) -> Failures:
        """At most one commit a session. A batch that failed half-way is not repeated, because some
        of its sessions may have moved; they all fail."""
        return self._each_alone_if_needed(self._drafter.observe, commits, retry=False)

    def close(self, key: SessionKey) -> None:
        try:
            self._drafter.close(key)
        except Exception:
            self._careful = CAREFUL_CALLS

    def propose(
        self, requests: Sequence[DraftRequest], lengths: Sequence[int]
    ) -> list[Proposal | str]:
        """For each request its proposal, or why the session failed. `lengths` are the sessions'
        committed lengths. A batch that raises is asked again session by session."""
        if not requests:
            return []
        try:
            answers = self._in_order(requests, self._drafter.propose(requests))
        except Exception as error:
            if len(requests) > 1:
                alone = zip(requests, lengths, strict=True)
                return [self.propose([r], [length])[0] for r, length in alone]
            answers = [_reason(error)]
        return [self._checked(*item) for item in zip(answers, requests, lengths, strict=True)]

    def _in_order(
        self, requests: Sequence[DraftRequest], proposals: Sequence[Proposal]
    ) -> list[Proposal | str]:
        """One answer a request; proposals for nobody are ignored."""
        if [p.key for p in proposals] == [r.key for r in requests]:
            return list(proposals)
        answers: dict[SessionKey, Proposal | str] = {}
        for proposal in proposals:
            twice = proposal.key in answers
            answers[proposal.key] = "two proposals for one session" if twice else proposal
        return [answers.get(r.key, "no proposal") for r in requests]

    def _checked(
        self, answer: Proposal | str, request: DraftRequest, length: int
    ) -> Proposal | str:
        problem = answer if isinstance(answer, str) else self._problem(answer, request, length)
        if problem:
            self.close(request.key)
            return problem
        return answer

    def _problem(self, answer: Proposal, request: DraftRequest, length: int) -> str:
        """Why a proposal cannot be used; empty when it can."""
        if answer.base_len != length:
            return f"drafted on {answer.base_len} tokens where {length} are committed"
        if len(answer.tokens) > request.depth:
            return f"{len(answer.tokens)} tokens proposed where {request.depth} were wanted"
        for token in answer.tokens:
            if not (isinstance(token, int) and 0 <= token < self._vocab_size):
                return f"token {token!r} is not an id of the vocabulary"
        confidence = answer.confidence
        if confidence is not None and not confides(confidence, len(answer.tokens)):
            return f"confidence is not {CONFIDENCE}"
        return self._law_problem(answer)

    def _law_problem(self, answer: Proposal) -> str:
        if answer.law is None:
            return ""
        if len(answer.law) != len(answer.tokens):
            return f"{len(answer.law)} laws for {len(answer.tokens)} tokens"
        for law, token in zip(answer.law, answer.tokens, strict=True):
            if not isinstance(law, TokenLaw):
                return f"{law!r} is no law"
            wrong = problem(law, token, self._vocab_size)
            if not wrong and len(law.ids) > self._max_law:
                wrong = f"{len(law.ids)} ids, at most {self._max_law} are taken"
            if wrong:
                return f"a law has {wrong}"
        return ""

    def _each_alone_if_needed(
        self, call: Callable[[Sequence[_Item]], None], items: Sequence[_Item], *, retry: bool
    ) -> Failures:
        if not items:
            return {}
        if self._careful and len(items) > 1:
            self._careful -= 1
            return self._one_by_one(call, items)
        try:
            call(items)
        except DrafterError as error:
            named = {item.key for item in items} & set(error.keys)
            if named:
                return self._fail(dict.fromkeys(named, _reason(error)))
            problem = _reason(error)
        except Exception as error:
            problem = _reason(error)
        else:
            return {}
        self._careful = CAREFUL_CALLS
        failures = self._fail({item.key: problem for item in items})
        if retry and len(items) > 1:
            return self._one_by_one(call, items)
        return failures

    def _one_by_one(
        self, call: Callable[[Sequence[_Item]], None], items: Sequence[_Item]
    ) -> Failures:
        failures: Failures = {}
        for item in items:
            failures.update(self._each_alone_if_needed(call, [item], retry=False))
        return failures

    def _fail(self, failures: Failures) -> Failures:
        for key in failures:
            self.close(key)
        return failures


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
