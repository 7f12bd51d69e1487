"""What of the blocks at hand is offered: by base, and where laws are weighed by nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from actors.contracts import SessionKey
from actors.exchange.home import PortSession
from actors.sampling.law import TokenLaw
from pilotfish.v1 import exchange_pb2 as pb
from tests.unit.actors.exchange.helpers import View

LAWS = tuple(TokenLaw(np.array([t]), np.ones(1, np.float32)) for t in (5, 6, 7))


def make_session(tokens: list[int], *, tails: bool) -> PortSession:
    session = PortSession(View("r", tokens), tails=tails)
    session.key = SessionKey("v", "r", 1)
    block = pb.Block(key=pb.SessionKey(request="r", epoch=1), base_len=2, tokens=[5, 6, 7])
    session.answer(block, 0.0, LAWS)
    return session


@pytest.mark.parametrize("tails", [True, False])
def test_a_block_on_the_committed_length_is_offered_whole(tails: bool) -> None:
    draft = make_session([1, 2], tails=tails).take()
    assert draft is not None
    assert draft.tokens == (5, 6, 7)
    assert draft.law == LAWS


def test_a_tail_keeps_the_laws_of_its_tokens() -> None:
    draft = make_session([1, 2, 5], tails=True).take()
    assert draft is not None
    assert (draft.tokens, draft.behind, draft.law) == ((6, 7), 1, LAWS[1:])


def test_no_tail_is_offered_where_laws_are_weighed() -> None:
    """S16: whether it fits, and whether it came late, is known from its own tokens."""
    session = make_session([1, 2, 5], tails=False)
    assert session.take() is None
    assert session.stale
    assert not session.blocks
