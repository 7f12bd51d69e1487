"""Drafters that are of no use, for `shift.py`: law L4 is about them.

Built as `custom_class` drafters are: `broken_drafters:Useless` and so on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from actors.contracts import Commit, Drafter, DrafterInfo, DraftRequest, OpenSession, Proposal
from actors.contracts import SessionKey as Key
from actors.drafters.config import DrafterConfig
from actors.drafters.table import build_drafter

SLOW_S = 0.03


class _Suffix:
    """Suffix decoding under another name."""

    name = ""

    def __init__(self) -> None:
        self.inner: Drafter = build_drafter(DrafterConfig("suffix"))

    @property
    def info(self) -> DrafterInfo:
        return replace(self.inner.info, mechanism=self.name)

    def open(self, sessions: Sequence[OpenSession]) -> None:
        self.inner.open(sessions)

    def observe(self, commits: Sequence[Commit]) -> None:
        self.inner.observe(commits)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        return self.inner.propose(requests)

    def close(self, key: Key) -> None:
        self.inner.close(key)


class Slow(_Suffix):
    """As good as suffix decoding, `SLOW_S` later."""

    name = "slow"

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        if requests:
            time.sleep(SLOW_S)
        return self.inner.propose(requests)


class Useless(_Suffix):
    """A full block each time, sure of all of it, and nothing in it that the target would write."""

    name = "useless"

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        return [
            replace(answer, tokens=(0,) * request.depth, confidence=(1.0,) * request.depth)
            for answer, request in zip(self.inner.propose(requests), requests, strict=True)
        ]


class Dead(_Suffix):
    """Fails whenever it is asked."""

    name = "dead"

    def propose(self, requests: Sequence[DraftRequest]) -> NoReturn:
        raise RuntimeError("a drafter that is dead")
