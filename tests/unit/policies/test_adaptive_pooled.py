"""A verifier tells what it has learnt by itself, and begins where others are."""

from __future__ import annotations

from policies.acceptance import survival
from policies.choice import Group
from policies.choice_records import Moment
from policies.estimate import ENOUGH_BLOCKS, EVERYONE, Counts
from policies.pooled import Contribution, summed
from policies.tally import Totals
from tests.unit.policies.test_adaptive import SUFFIX, make_moment, make_policy, moments, play

KEY = ("default", "suffix")


def learnt_by_another(right: int) -> Totals:
    teacher = make_policy()
    play(teacher, moments(60), right=right)
    return summed({"v": Contribution(1, 0.0, teacher.tally.taken().totals)}, 0.0)


def test_what_is_told_is_what_was_scored() -> None:
    policy = make_policy()
    play(policy, moments(60), right=3)
    counts = policy.tally.taken().totals[KEY]
    own = policy.state.estimates[KEY]
    assert counts.accept == own.accept
    assert counts.reach == own.reach


def test_one_that_begins_from_others_need_not_find_out_itself() -> None:
    """Where shadows say nothing, evidence comes by rare probes."""
    alone, told = make_policy(), make_policy()
    told.begin(learnt_by_another(right=8))
    first = [play(p, moments(12, rule="rejection"), right=8)[-1] for p in (alone, told)]
    assert first[0].plans["default"].reason == "no-evidence"
    assert first[1].plans["default"].depth > 4


def test_what_was_told_is_no_evidence_to_tell() -> None:
    told = make_policy()
    told.begin(learnt_by_another(right=8))
    told.decide(make_moment(0))
    assert KEY in told.state.estimates
    assert told.tally.taken().totals == {}


def test_one_that_was_told_wrong_unlearns_it_sooner_than_a_change_of_its_own_text() -> None:
    """Law L4 does not hang on what others say."""
    own, told = make_policy(), make_policy()
    play(own, moments(60), right=8)
    told.begin(learnt_by_another(right=8))
    drafted = [
        sum(d.plans["default"].depth > 0 for d in play(policy, moments(200, 60), right=0))
        for policy in (told, own)
    ]
    assert 0 < drafted[0] < drafted[1] < 200


def test_a_cohort_is_begun_when_it_is_met_and_never_again() -> None:
    policy, pooled = make_policy(), dict(learnt_by_another(right=8))
    pooled["code", "suffix"] = pooled[KEY]
    policy.begin(pooled)
    play(policy, moments(40), right=0)
    assert ("code", "suffix") not in policy.state.estimates
    own = policy.state.estimates[KEY]
    policy.begin(pooled)
    policy.decide(Moment(40, (Group("default", 1, 8), Group("code", 1, 8)), (SUFFIX,)))
    assert policy.state.estimates[KEY] == own
    begun = policy.state.estimates["code", "suffix"]
    assert begun.step == 40
    assert Counts(begun.accept, begun.reach).blocks >= ENOUGH_BLOCKS


def test_what_a_later_snapshot_knows_of_another_mechanism_is_begun_from_too() -> None:
    policy, pooled = make_policy(), dict(learnt_by_another(right=8))
    policy.begin(pooled)
    policy.decide(make_moment(0))
    policy.begin({**pooled, ("default", "learned"): pooled[KEY]})
    policy.decide(make_moment(1))
    assert policy.state.estimates["default", "learned"].step == 1
    assert policy.state.estimates[KEY].step == 0


def test_after_a_change_of_text_what_was_before_is_told_no_more() -> None:
    policy = make_policy()
    play(policy, moments(100), right=8)
    play(policy, moments(60, 100), right=0)
    changed = policy.state.changed["default"]
    assert 100 < changed < 160
    told = policy.tally.taken().totals[KEY]
    assert survival(told.accept, 1)[0] < 0.5
    assert (EVERYONE, "suffix") not in policy.tally.taken().totals
