"""S51 at the wall: whatever a drafter does, it costs the sessions it did it to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from actors.contracts import (
    Commit,
    DrafterError,
    DraftRequest,
    OpenSession,
    Proposal,
    SessionKey,
)
from actors.exchange.guard import GuardedDrafter
from tests.unit.actors.exchange.helpers import GREEDY, ToyDrafter

KEYS = [SessionKey("v", f"r{i}") for i in range(4)]
LENGTHS = [2] * 4
REQUESTS = [DraftRequest(key, 3) for key in KEYS]


def make_guarded(drafter: ToyDrafter, vocab_size: int = 97) -> GuardedDrafter:
    guard = GuardedDrafter(drafter, vocab_size)
    assert guard.open([OpenSession(key, (1, 2), GREEDY) for key in KEYS]) == {}
    return guard


def ask(guard: GuardedDrafter) -> tuple[dict[SessionKey, Proposal], dict[SessionKey, str]]:
    """Proposals, and failures, by session."""
    answers = dict(zip(KEYS, guard.propose(REQUESTS, LENGTHS), strict=True))
    proposals = {k: a for k, a in answers.items() if isinstance(a, Proposal)}
    return proposals, {k: a for k, a in answers.items() if isinstance(a, str)}


def on_r1(change: Callable[[Proposal], list[Proposal]]) -> Callable[..., list[Proposal]]:
    def spoil(proposals: list[Proposal]) -> list[Proposal]:
        return [q for p in proposals for q in (change(p) if p.key == KEYS[1] else [p])]

    return spoil


def boom(proposal: Proposal) -> list[Proposal]:
    raise RuntimeError("boom")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(boom, id="raises"),
        pytest.param(lambda p: [replace(p, tokens=(102,))], id="id V+5"),
        pytest.param(lambda p: [replace(p, tokens=(-3,))], id="id -3"),
        pytest.param(lambda p: [replace(p, tokens=(1.5,))], id="no id"),
        pytest.param(lambda p: [replace(p, tokens=(1,) * 4)], id="longer than asked"),
        pytest.param(lambda p: [replace(p, base_len=1)], id="another base"),
        pytest.param(lambda p: [replace(p, confidence=(math.nan,) * 3)], id="nan"),
        pytest.param(lambda p: [replace(p, confidence=(0.5,))], id="one confidence"),
        pytest.param(lambda p: [], id="missing"),
        pytest.param(lambda p: [p, p], id="twice"),
        pytest.param(lambda p: [None], id="nonsense"),
    ],
)
def test_one_bad_proposal_costs_one_session(change: Any) -> None:
    drafter = ToyDrafter()
    guard = make_guarded(drafter)
    drafter.spoil = on_r1(change)
    proposals, failures = ask(guard)
    assert set(proposals) == {KEYS[0], KEYS[2], KEYS[3]}
    assert set(failures) == {KEYS[1]}
    assert failures[KEYS[1]]
    # The failed session is closed on the drafter before the call returns.
    assert set(drafter.tokens) == set(proposals)


def test_a_proposal_for_nobody_is_ignored() -> None:
    drafter = ToyDrafter()
    guard = make_guarded(drafter)
    stranger = Proposal(SessionKey("v", "stranger"), 2, (1,))
    drafter.spoil = lambda proposals: [*proposals, stranger]
    proposals, failures = ask(guard)
    assert set(proposals) == set(KEYS)
    assert failures == {}


def test_shorter_and_empty_blocks_are_sound() -> None:
    drafter = ToyDrafter()
    guard = make_guarded(drafter)
    drafter.spoil = lambda ps: [replace(p, tokens=p.tokens[:i]) for i, p in enumerate(ps)]
    proposals, failures = ask(guard)
    assert [len(proposals[key].tokens) for key in KEYS] == [0, 1, 2, 3]
    assert failures == {}


def test_a_batch_that_is_always_broken_costs_every_session_and_no_more() -> None:
    drafter = ToyDrafter()
    guard = make_guarded(drafter)
    drafter.spoil = lambda proposals: [boom(p)[0] for p in proposals]
    proposals, failures = ask(guard)
    assert proposals == {}
    assert set(failures) == set(KEYS)
    assert drafter.tokens == {}


class Picky(ToyDrafter):
    """Refuses one session at open or observe, by name or with any exception."""

    def __init__(self, named: bool) -> None:
        super().__init__()
        self.named = named
        self.bad: SessionKey | None = None

    def open(self, sessions: Sequence[OpenSession]) -> None:
        super().open(sessions)
        self._refuse([s.key for s in sessions])

    def observe(self, commits: Sequence[Commit]) -> None:
        super().observe(commits)
        self._refuse([c.key for c in commits])

    def _refuse(self, keys: Sequence[SessionKey]) -> None:
        if self.bad in keys:
            raise DrafterError("no", [KEYS[1]]) if self.named else ValueError("no")


@pytest.mark.parametrize("named", [True, False])
def test_a_session_that_does_not_open_takes_nobody_with_it(named: bool) -> None:
    drafter = Picky(named)
    drafter.bad = KEYS[1]
    guard = GuardedDrafter(drafter)
    failures = guard.open([OpenSession(key, (1, 2), GREEDY) for key in KEYS])
    assert set(failures) == {KEYS[1]}
    assert set(drafter.tokens) == {KEYS[0], KEYS[2], KEYS[3]}


def test_a_named_failure_of_observe_costs_the_named_session() -> None:
    drafter = Picky(named=True)
    guard = make_guarded(drafter)
    drafter.bad = KEYS[1]
    assert set(guard.observe([Commit(key, 1, 2, (5,)) for key in KEYS])) == {KEYS[1]}
    assert [drafter.tokens[KEYS[i]] for i in (0, 2, 3)] == [[1, 2, 5]] * 3


def test_after_an_unnamed_failure_of_observe_the_culprit_is_found_alone() -> None:
    """Who moved before the exception is unknown, so all of the call are out, once."""
    drafter = Picky(named=False)
    guard = make_guarded(drafter)
    drafter.bad = KEYS[1]
    commits = [Commit(key, 1, 2, (5,)) for key in KEYS]
    assert set(guard.observe(commits)) == set(KEYS)
    assert drafter.tokens == {}
    drafter.bad = None
    assert guard.open([OpenSession(key, (1, 2), GREEDY) for key in KEYS]) == {}
    drafter.bad = KEYS[1]
    assert set(guard.observe(commits)) == {KEYS[1]}


def test_a_close_that_raises_is_contained() -> None:
    class Clingy(ToyDrafter):
        def close(self, key: SessionKey) -> None:
            raise RuntimeError("never")

    make_guarded(Clingy()).close(KEYS[0])
