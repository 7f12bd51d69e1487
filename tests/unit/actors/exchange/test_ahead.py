"""Run-ahead: a right guess of the commit saves the next round's wait, a wrong one costs nothing."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from actors.contracts import DraftRequest, Proposal, SessionKey
from actors.exchange.ahead import Ahead
from tests.unit.actors.exchange.helpers import (
    Engine,
    ToyDrafter,
    assert_text_is_the_targets,
    make_views,
    ported,
    serving,
    wait_for,
)

KEY, OTHER = SessionKey("v", "a"), SessionKey("v", "b")


def test_a_session_is_taken_further_once_for_each_block() -> None:
    ahead = Ahead(9)
    ahead.answered(KEY, 3, 4, 4)
    ((key, block, length),) = ahead.take()
    assert (key, block.round, length) == (KEY, 3, 9)  # the block, the target's own, a block
    assert ahead.take() == []


def test_a_chain_is_no_longer_than_the_drafter_says() -> None:
    ahead = Ahead(6)
    ahead.answered(KEY, 1, 4, 4)
    ahead.answered(OTHER, 1, 6, 6)  # nothing is left to add
    assert [(key, length) for key, _, length in ahead.take()] == [(KEY, 6)]


def test_nobody_goes_on_from_a_short_block_or_past_a_newer_commit() -> None:
    ahead = Ahead(9)
    ahead.answered(KEY, 1, 4, 2)
    ahead.answered(OTHER, 1, 4, 4)
    ahead.overtaken(OTHER)
    assert ahead.take() == []


class Slow(ToyDrafter):
    """Answers ordinary asks of later rounds only when it is let."""

    def __init__(self) -> None:
        super().__init__(max_ahead=9)
        self.free = threading.Event()
        self.longest = 0

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        self.longest = max([self.longest, *(r.depth for r in requests)])
        if self.longest > 4 and all(r.depth <= 4 for r in requests):
            assert self.free.wait(30)
        return super().propose(requests)


def test_a_right_guess_brings_the_next_block_before_it_is_asked_for() -> None:
    drafter = Slow()
    with serving(drafter) as endpoint, ported(endpoint) as port:
        engine = Engine(port)
        engine.start(*make_views(3))
        engine.gather()
        sessions = port._sessions.values()
        wait_for(lambda: all(len(s.blocks) == 2 for s in sessions))  # the chains have come
        assert drafter.longest == 9
        engine.step()
        gathered = engine.step()  # whose own asks nobody has answered
        assert gathered.missing == {}
        assert [draft.tokens for draft in gathered.drafts.values()]
        assert engine.accepted == engine.drafted == 2 * 3 * 4
        drafter.free.set()
        assert_text_is_the_targets(engine)
        engine.stop()
        assert drafter.wait_empty()


def test_a_wrong_guess_is_dropped_and_the_text_is_the_targets() -> None:
    drafter = ToyDrafter(max_ahead=9)
    drafter.spoil = lambda proposals: [
        Proposal(p.key, p.base_len, (*p.tokens[:2], *((t + 1) % 97 for t in p.tokens[2:])))
        for p in proposals
    ]
    with serving(drafter) as endpoint, ported(endpoint) as port:
        engine = Engine(port)
        engine.start(*make_views(3))
        for _ in range(8):
            assert engine.step().missing == {}
        assert 0 < engine.accepted < engine.drafted
        assert_text_is_the_targets(engine)
        engine.stop()
        assert drafter.wait_empty()
