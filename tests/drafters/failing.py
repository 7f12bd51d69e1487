"""Fails on purpose in one of the ways released drafters did (pitfalls S51)."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from actors.contracts import DrafterError, DraftRequest, Proposal
from tests.drafters.base import NextToken
from tests.drafters.knowing import KnowingDrafter

Mode = Literal[
    "raise", "session", "nan", "range", "length", "base", "missing", "foreign", "hang", "load"
]


class FailingDrafter(KnowingDrafter):
    """Sound until call `at_round` of propose (1 is the first), then bad for `times` calls.

    mode: raise (any exception), session (DrafterError naming the first request's session), nan
    (confidence), range (ids vocab_size + 5 and -3), length (longer than asked), base (base_len off
    by one), missing (no proposals at all), foreign (a session nobody asked for), hang (until
    `release` is set), load (the constructor raises). times 0: for ever.
    """

    mechanism = "failing"

    def __init__(
        self,
        mode: Mode = "raise",
        at_round: int = 2,
        vocab_size: int = 128,
        *,
        times: int = 1,
        next_token: NextToken | None = None,
        **kw: Any,
    ) -> None:
        if mode == "load":
            raise RuntimeError("this drafter never loads")
        if next_token is None and "model" not in kw:
            next_token = lambda prefix, sampling: prefix[-1]  # noqa: E731
        super().__init__(next_token, vocab_size, **kw)
        self.mode, self.at_round, self.times = mode, at_round, times
        self.release = threading.Event()
        self.hanging = threading.Event()
        self.failures = 0

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        good = super().propose(requests)
        late = self.calls - self.at_round
        if late < 0 or (self.times and late >= self.times) or not requests:
            return good
        self.failures += 1
        return self._spoil(good, requests)

    def _spoil(self, good: list[Proposal], requests: Sequence[DraftRequest]) -> list[Proposal]:
        if self.mode == "raise":
            raise RuntimeError("the drafter broke")
        if self.mode == "session":
            raise DrafterError("one session broke", [requests[0].key])
        if self.mode == "hang":
            self.hanging.set()
            self.release.wait()
            return good
        if self.mode == "missing":
            return []
        if self.mode == "foreign":
            stranger = replace(requests[0].key, request="nobody-asked")
            return [*good, replace(good[0], key=stranger)]
        return [self._spoil_one(p) for p in good]

    def _spoil_one(self, p: Proposal) -> Proposal:
        if self.mode == "nan":
            return replace(p, confidence=(math.nan,) * len(p.tokens))
        if self.mode == "range":
            return replace(p, tokens=(self.vocab_size + 5, -3))
        if self.mode == "base":
            return replace(p, base_len=p.base_len + 1)
        return replace(p, tokens=p.tokens + (0,) * 1000)
