"""What a cohort's plan, and the cheap way beside it, come to for one block."""

from __future__ import annotations

import pytest

from actors.contracts import Draft
from actors.engine.ways import Ways, most, refused, ways_of
from policies.choice import Arm
from policies.choice_records import Plan

LEARNED = Arm("eagle3", remote=True)
SUFFIX = Arm("suffix", remote=False)
GAIN = Plan(LEARNED, 2, 4, "gain")
CHEAP = Plan(SUFFIX, 8, 8, "no-gain")
BOTH = Ways(GAIN, CHEAP)


def block(arm: Arm, confidence: tuple[float, ...] = ()) -> Draft:
    return Draft((1, 2, 3), arm.mechanism, arm.remote, confidence=confidence)


def test_the_plans_way_is_tried_before_the_cheap_one() -> None:
    assert tuple(BOTH.each()) == (GAIN, CHEAP)
    assert tuple(Ways(GAIN).each()) == (GAIN,)


@pytest.mark.parametrize(("arm", "plan"), [(LEARNED, GAIN), (SUFFIX, CHEAP)])
def test_a_block_is_bounded_by_the_plan_that_it_was_asked_for(arm: Arm, plan: Plan) -> None:
    assert BOTH.of(block(arm)) == plan
    assert most(BOTH, block(arm), weighed=False, proven=False) == plan.depth


def test_a_block_of_the_same_mechanism_elsewhere_is_not_the_cheap_ways() -> None:
    here, there = Arm("eagle3", remote=False), Plan(Arm("eagle3", remote=True), 2, 4, "gain")
    assert Ways(there, Plan(here, 8, 8, "no-gain")).of(block(LEARNED)) == there


@pytest.mark.parametrize(("weighed", "bound"), [(False, 4), (True, 2)])
def test_how_sure_a_block_is_counts_where_no_laws_are_weighed(weighed: bool, bound: int) -> None:
    """S16: there no length may hang on what was drafted."""
    sure = block(LEARNED, (0.9, 0.9, 0.9))
    assert most(Ways(GAIN), sure, weighed=weighed, proven=True) == bound


@pytest.mark.parametrize(("proven", "bound"), [(False, 0), (True, 8)])
def test_before_there_is_a_plan_a_drafter_that_was_right_is_left_to_each_request(
    proven: bool, bound: int
) -> None:
    unknown = Ways(Plan(SUFFIX, 0, 8, "no-evidence"))
    assert most(unknown, block(SUFFIX, (0.9, 0.9, 0.9)), weighed=False, proven=proven) == bound
    assert most(None, block(SUFFIX), weighed=False, proven=proven) == 0


def test_why_a_block_was_not_verified_is_the_reason_of_its_own_plan() -> None:
    assert refused(BOTH, block(LEARNED)) == "budget"
    assert refused(BOTH, block(SUFFIX)) == refused(None, block(SUFFIX)) == "no-gain"


@pytest.mark.parametrize("reason", ["no-gain", "held"])
def test_where_blocks_do_not_pay_on_average_the_cheap_drafter_is_left_to_each_request(
    reason: str,
) -> None:
    plan = Plan(None, 0, 0, reason)  # type: ignore[arg-type]
    assert ways_of(plan, SUFFIX, 4, resting=False) == Ways(Plan(SUFFIX, 4, 4, plan.reason))


def test_without_evidence_its_blocks_are_asked_for_and_none_is_planned() -> None:
    unknown = Plan(None, 0, 0, "no-evidence")
    assert ways_of(unknown, SUFFIX, 4, resting=False).plan.depth == 0
    assert ways_of(unknown, SUFFIX, 4, resting=False).plan.ask == 4


@pytest.mark.parametrize("reason", ["control", "slower", "off", "wish"])
def test_what_is_to_be_standard_decode_stays_it(reason: str) -> None:
    plan = Plan(None, 0, 0, reason)  # type: ignore[arg-type]
    assert ways_of(plan, SUFFIX, 4, resting=False) == Ways(plan)


def test_the_cheap_drafter_stands_beside_another_ones_plan_and_not_beside_its_own() -> None:
    assert ways_of(GAIN, SUFFIX, 4, resting=False) == Ways(GAIN, Plan(SUFFIX, 4, 4, "no-gain"))
    assert ways_of(GAIN, LEARNED, 4, resting=False) == Ways(GAIN)
    assert ways_of(GAIN, None, 4, resting=False) == Ways(GAIN)


def test_a_batch_at_rest_has_no_wish_for_its_reason() -> None:
    wish = Plan(None, 0, 0, "wish")
    assert ways_of(wish, SUFFIX, 4, resting=True).plan.reason == "no-gain"
    assert ways_of(wish, SUFFIX, 4, resting=False).plan.reason == "wish"
