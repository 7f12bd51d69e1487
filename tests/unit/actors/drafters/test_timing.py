"""What a drafter says of its own time before it serves."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event

import pytest

from actors.contracts import Commit, DraftRequest, OpenSession, Proposal
from actors.drafters.combined import CombinedDrafter
from actors.drafters.config import DrafterConfig
from actors.drafters.errors import DrafterStuck
from actors.drafters.suffix import SuffixDrafter
from actors.drafters.timing import PROMPT, timed
from policies.acceptance import Acceptance
from tests.drafters.base import Session, TokenDrafter
from tests.drafters.feature_receiver import FeatureReceiver
from tests.law.learned import make
from tests.unit.actors.drafters.builders import make_drafter


class Ticking(TokenDrafter):
    """On a clock of its own: telling takes `tell_s` a session, drafting `draft_s` a token; reading
    a prompt is no part of a round. It is cold for its first `cold` proposals."""

    def __init__(self, tell_s: float = 0.25, draft_s: float = 1.0, cold: int = 0) -> None:
        super().__init__(max_block=5)
        self.now_s = 0.0
        self.tell_s, self.draft_s, self.cold = tell_s, draft_s, cold
        self.most = 0

    def clock(self) -> float:
        return self.now_s

    def open(self, sessions: Sequence[OpenSession]) -> None:
        super().open(sessions)
        self.most = max(self.most, len(self.sessions))
        self.now_s += 10.0

    def observe(self, commits: Sequence[Commit]) -> None:
        super().observe(commits)
        self.now_s += self.tell_s * len(commits)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        answers = super().propose(requests)
        if self.calls <= self.cold:
            return [Proposal(p.key, p.base_len, (), cold=True) for p in answers]
        self.now_s += self.draft_s * requests[0].depth * len(requests)
        return answers

    def block(self, session: Session, depth: int) -> list[int]:
        return [0] * depth


def test_a_round_is_one_commit_and_one_block_of_each_session() -> None:
    drafter = Ticking()
    expected = [(n, d, n * (0.25 + d)) for n in (1, 8, 32) for d in (1, 5)]
    assert timed(drafter, 8, budget_s=1e9, clock=drafter.clock, slow_s=1e9) == expected


def test_no_deeper_blocks_are_timed_than_are_ever_asked_for() -> None:
    drafter = Ticking()
    timings = timed(drafter, 3, clock=drafter.clock)
    assert [(n, depth) for n, depth, _ in timings] == [(1, 1), (1, 3)]


def test_a_slow_drafter_is_timed_with_one_session_alone() -> None:
    drafter = Ticking()
    assert {n for n, _, _ in timed(drafter, 8, budget_s=0.5, clock=drafter.clock)} == {1}
    assert drafter.most == 1


def test_a_prompt_is_read_before_the_clock_runs() -> None:
    drafter = Ticking(cold=3)
    assert timed(drafter, 8, clock=drafter.clock) == [(1, 1, 1.25), (1, 5, 5.25)]


def test_nothing_of_what_was_made_up_stays() -> None:
    drafter = Ticking()
    timed(drafter, 8, budget_s=1e9, clock=drafter.clock, slow_s=1e9)
    assert drafter.sessions == {}


def test_made_up_texts_are_drafted_for_nobody() -> None:
    suffix = SuffixDrafter(DrafterConfig("suffix", suffix_decoding_max_cached_requests=64))
    assert timed(suffix, 4)
    assert (len(suffix.shared), len(suffix.sessions)) == (0, 0)


def test_blocks_on_made_up_texts_are_no_evidence() -> None:
    suffix = SuffixDrafter(DrafterConfig("suffix"))
    combined = CombinedDrafter(Ticking(), suffix)
    assert timed(combined, 4)
    assert combined._counts == Acceptance()
    assert combined.sessions == {}


@pytest.mark.parametrize("call", ["open", "observe", "propose", "close", "info"])
def test_a_drafter_that_fails_has_no_timings_and_no_sessions(call: str) -> None:
    class Broken(Ticking):
        def __getattribute__(self, name: str) -> object:
            if name == call:
                raise RuntimeError("it broke")
            return super().__getattribute__(name)

    drafter = Broken()
    timings = timed(drafter, 4, clock=drafter.clock)
    if call == "close":
        assert timings  # its rounds were sound
    else:
        assert timings == []
        assert drafter.sessions == {}


def test_a_drafter_that_is_too_slow_to_be_timed_is_left_with_what_is_known() -> None:
    """One session takes 10 s to open and four rounds of 13 s in all; eight take 104 s."""
    drafter = Ticking()
    some = timed(drafter, 8, budget_s=1e9, clock=drafter.clock, slow_s=60.0)
    assert {n for n, _, _ in some} == {1}
    assert drafter.sessions == {}
    slower = Ticking(draft_s=20.0)
    assert timed(slower, 8, clock=slower.clock, slow_s=60.0) == []
    assert slower.sessions == {}


@pytest.mark.parametrize("call", ["open", "observe", "propose", "close"])
def test_a_drafter_that_does_not_come_back_is_refused_and_holds_nobody_up(call: str) -> None:
    go_on = Event()

    class Hung(Ticking):
        def __getattribute__(self, name: str) -> object:
            if name == call:
                go_on.wait()
            return super().__getattribute__(name)

    try:
        with pytest.raises(DrafterStuck, match=r"Hung has not come back .*0\.05 s") as caught:
            timed(Hung(), 4, stuck_s=0.05)
        assert caught.value.param == "method"
    finally:
        go_on.set()


def test_features_of_the_width_that_it_reads_are_made_up() -> None:
    drafter = make("EAGLE-3 speculators")
    timings = timed(drafter, 2, budget_s=0.0)
    assert [(n, depth) for n, depth, _ in timings] == [(1, 1), (1, 2)]
    assert all(seconds > 0.0 for _, _, seconds in timings)
    assert len(drafter.sessions) == 0


def test_a_drafter_that_does_not_say_how_wide_its_features_are_is_not_timed() -> None:
    assert timed(FeatureReceiver(), 4) == []


def test_a_context_too_short_for_it_is_left_alone() -> None:
    drafter = make_drafter("ngram", max_context=PROMPT)
    assert timed(drafter, 4) == []
