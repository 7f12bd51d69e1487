"""What a drafter says of its reading before it serves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from actors.contracts import DraftRequest, OpenSession, Proposal
from actors.drafters.config import DrafterConfig
from actors.drafters.reading import MORE, read_s
from actors.drafters.suffix import SuffixDrafter
from tests.drafters.base import Session, TokenDrafter
from tests.law.learned import MECHANISMS, make


class Reading(TokenDrafter):
    """On a clock of its own: a second to begin with, a tenth a token; read in `parts` proposals."""

    def __init__(self, parts: int = 1, fails: bool = False) -> None:
        super().__init__(max_block=5)
        self.now_s, self.parts, self.fails, self.left = 0.0, parts, fails, 0

    def open(self, sessions: Sequence[OpenSession]) -> None:
        if self.fails:
            raise RuntimeError("no memory")
        super().open(sessions)
        self.left = self.parts
        self._each_s = (1.0 + 0.1 * len(sessions[0].tokens)) / self.parts

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        answers = super().propose(requests)
        self.now_s += self._each_s if self.left else 0.0
        self.left -= 1
        return [Proposal(p.key, p.base_len, p.tokens, cold=self.left > 0) for p in answers]

    def block(self, session: Session, depth: int) -> list[int]:
        return [0] * depth


@pytest.mark.parametrize("parts", [1, 3])
def test_the_price_is_of_a_token_and_not_of_beginning(parts: int) -> None:
    drafter = Reading(parts)
    assert read_s(drafter, lambda: drafter.now_s) == pytest.approx(0.1)
    assert drafter.sessions == {}


def test_what_cannot_be_read_has_no_price() -> None:
    assert read_s(Reading(fails=True)) == 0.0
    short = SuffixDrafter(DrafterConfig("suffix", max_context=MORE))
    assert read_s(short) == 0.0


@pytest.mark.parametrize("name", MECHANISMS)
def test_drafters_that_read_features_can_be_timed(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_s(make(name)) >= 0.0
    assert "what reading takes" not in caplog.text
