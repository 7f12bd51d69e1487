"""Requests of a cohort have texts that differ: what the next one may bring is not what the last
one did."""

from __future__ import annotations

import pytest

from policies import choice_explore as explore
from policies.adaptive import IMPRESSION
from policies.choice import Arm
from policies.choice_records import Outcome
from policies.estimate import (
    ENOUGH_BLOCKS,
    EVERYONE,
    LONG_MEMORY,
    PAST_BLOCKS,
    Estimates,
    Scored,
    best,
    evidence,
    learnt,
    outlook,
    turned,
)
from tests.unit.policies.test_adaptive import make_moment, make_policy, play

KEY = ("default", "eagle3")
GOOD, BAD = [Scored(4, 4, 4)] * 2, [Scored(4, 4, 0)] * 2


def after(readings: list[list[Scored]], known: Estimates | None = None, step: int = 0) -> Estimates:
    estimates: Estimates = known or {}
    for passed, blocks in enumerate(readings):
        estimates, _ = learnt(estimates, KEY, blocks, step + passed)
    return estimates


def right(estimates: Estimates, step: int) -> float:
    return outlook(estimates, *KEY, 4, step).right


def test_a_new_request_is_expected_to_be_like_those_before_and_not_like_the_last() -> None:
    texts = after([GOOD] * 40)
    texts = after([BAD] * 40, texts, 40)
    assert right(texts, 80) < 0.5
    new = turned(texts, "default", 1.0)
    assert right(new, 80) > 2.0 * right(texts, 80)
    assert evidence(new, *KEY, 80) >= ENOUGH_BLOCKS  # it is believed at once, and soon outvoted
    assert right(after([BAD] * 8, new, 80), 88) < 0.5


def test_of_many_requests_a_new_one_changes_little() -> None:
    texts = after([BAD] * 40, after([GOOD] * 40), 40)
    some = turned(texts, "default", 1 / 12)
    assert evidence(some, *KEY, 80) == pytest.approx(evidence(texts, *KEY, 80) * 11 / 12)
    assert right(some, 80) == pytest.approx(right(texts, 80), abs=0.1)
    assert turned(texts, "other", 1.0) == texts


def test_a_cohort_with_a_past_leans_on_that_and_not_on_everyone() -> None:
    """Two kinds of text in two cohorts: neither is expected to be like the other."""
    estimates: Estimates = {}
    for step in range(64):
        estimates, _ = learnt(estimates, KEY, GOOD, step)
        estimates, _ = learnt(estimates, ("chat", "eagle3"), BAD, step)
        if step % 8 == 7:
            estimates = turned(turned(estimates, "default", 1.0), "chat", 1.0)
    assert estimates[EVERYONE, "eagle3"].accept.decided[0] > PAST_BLOCKS
    assert outlook(estimates, *KEY, 4, 64).right > 3.0
    assert outlook(estimates, "chat", "eagle3", 4, 64).right < 0.5


def test_the_best_text_of_late_is_remembered_through_others_and_not_for_ever() -> None:
    texts = after([BAD] * 40, after([GOOD] * 20), 20)
    hoped = best(texts, *KEY, 60).right
    assert hoped > 2.0 > right(texts, 60)
    assert best(texts, *KEY, 60 + int(LONG_MEMORY)).right == 0.0


def test_a_text_that_was_read_for_evidence_is_asked_until_it_makes_an_impression() -> None:
    policy = make_policy()
    play(policy, [make_moment(step) for step in range(200)], right=0)
    step = 200
    while True:
        decision = policy.decide(make_moment(step))
        if decision.shadow is not None:
            break
        step += 1
    assert not decision.shadow.again
    policy.pursue(decision.shadow.arm)
    shadows = 0
    for later in range(step + 1, step + 12):
        moment = make_moment(later)
        decision = policy.decide(moment)
        shadows += decision.shadow is not None and decision.shadow.again
        policy.learn(Outcome(moment, decision, 1, 0.01, 0.01, {"default": 1.0}))
    assert shadows == IMPRESSION - 1


def test_a_drafter_that_reads_first_is_allowed_a_first_impression_and_others_a_step() -> None:
    suffix, learned = Arm("suffix", False), Arm("eagle3", False, read_s=1e-4)
    assert explore.allowed_s(0.01, [suffix.read_s]) == 0.01
    both = explore.allowed_s(0.01, [suffix.read_s, learned.read_s])
    assert both == pytest.approx(0.01 * (1 + explore.IMPRESSION_STEPS))
