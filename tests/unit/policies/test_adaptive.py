"""The policy as a whole: reasons, limits, and that nothing of a request reaches the next."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from policies.adaptive import CALM_EVERY, Adaptive
from policies.change import suspicious
from policies.choice import Arm, Group
from policies.choice_explore import VAIN_SHARE, turn
from policies.choice_reasons import MEANING, Reason
from policies.choice_records import Decision, Moment, Outcome
from policies.choice_rows import Offer
from policies.control import Windows
from policies.estimate import Rule, Scored
from policies.estimate_cost import Sample
from policies.estimate_cost import profiled as profiled_steps
from policies.estimate_draft import profiled as profiled_drafts

SUFFIX, LEARNED = Arm("suffix", remote=False), Arm("learned")
NO_WINDOWS = Windows(steps=0)


def forward_s(rows: int) -> float:
    """Nearly free rows up to 8, then in proportion."""
    return 0.010 + 0.0001 * rows if rows <= 8 else 0.00135 * rows


def make_policy(
    arms: Sequence[Arm] = (SUFFIX,), depth: int = 8, windows: Windows = NO_WINDOWS
) -> Adaptive:
    drafts = {arm: profiled_drafts([(1, 8, 0.001), (32, 8, 0.002)]) for arm in arms}
    steps = [Sample(rows, forward_s(rows)) for rows in (1, 8, 32, 64, 512)]
    return Adaptive(profiled_steps(steps), drafts, depth=depth, windows=windows)


def make_moment(step: int, clients: int = 1, rule: Rule = "coupled", limit: int = 8) -> Moment:
    return Moment(step, (Group("default", clients, limit),), (SUFFIX,), rule)


def play(
    policy: Adaptive,
    moments: Sequence[Moment],
    right: int | None,
    factor: float = 1.0,
    speedup: float | None = None,
) -> list[Decision]:
    """Each block comes whole and its first `right` tokens are accepted; None: none comes. factor:
    of every forward's time. speedup: of drafting steps against the model's standard, whatever was
    accepted."""
    decisions = []
    for moment in moments:
        decision = policy.decide(moment)
        decisions.append(decision)
        blocks, drafted = {}, 0
        for cohort, plan in decision.plans.items():
            count = moment.writers
            if plan.arm is not None:
                drafted += count * plan.depth
                size = plan.ask if right is not None else 0
                hit = min(right or 0, size)
                blocks[cohort, plan.arm.mechanism] = [Scored(plan.ask, size, hit)] * count
        if (shadow := decision.shadow) is not None:
            size = shadow.depth if right is not None else 0
            found = [Scored(shadow.depth, size, min(right or 0, size), False)] * shadow.rows
            key = shadow.cohort, shadow.arm.mechanism
            blocks[key] = [*blocks.get(key, []), *found]
        rows = moment.writers + drafted
        took_s = factor * forward_s(rows)
        accepted = min(right or 0, decision.plans["default"].depth)
        written = moment.writers * (1 + accepted)
        if speedup is not None:
            standard_s = forward_s(moment.writers)
            written = moment.writers * took_s / standard_s * (speedup if drafted else 1.0)
        policy.learn(Outcome(moment, decision, rows, took_s, took_s, {"default": written}, blocks))
    return decisions


def moments(count: int, start: int = 0, **options) -> list[Moment]:
    return [make_moment(step, **options) for step in range(start, start + count)]


def test_without_evidence_nothing_is_verified_and_shadows_gather_it() -> None:
    """No evidence, no plan that drafts."""
    policy = make_policy()
    decisions = play(policy, moments(40), right=8)
    first = decisions[0].plans["default"]
    assert (first.depth, first.reason) == (0, "no-evidence")
    assert decisions[0].shadow is not None
    last = decisions[-1].plans["default"]
    assert last.arm == SUFFIX
    assert last.depth > 4
    assert last.reason in ("gain", "held")


def test_no_shadow_is_wanted_of_a_drafter_whose_first_text_cannot_be_paid() -> None:
    """It would come to nothing, and each step that wants one is looked at."""
    policy = make_policy()
    policy.reads_s = {SUFFIX: 10.0}
    decisions = play(policy, moments(100), right=8)
    assert all(decision.shadow is None for decision in decisions)
    assert policy.state.purse.spent_s == 0.0
    assert decisions[-1] is decisions[-2]
    policy.reads_s = {SUFFIX: 0.001}
    assert any(d.shadow is not None for d in play(policy, moments(40, start=100), right=8))


def test_what_cannot_be_paid_is_not_looked_at_until_it_can() -> None:
    """A drafter of 0.3 s a block lacks evidence, which is urgent, and the account bears none for
    6,000 steps: looks are as rare as they come. Another one's shadows do not wait for it."""
    policy = make_policy()
    policy.state = replace(policy.state, draft={SUFFIX: profiled_drafts([(1, 8, 0.3)])})
    decisions = play(policy, moments(400), right=8)
    assert all(decision.shadow is None for decision in decisions)
    looks = sum(a is not b for a, b in itertools.pairwise(decisions[50:]))
    assert looks <= 2 * 350 // CALM_EVERY
    both = make_policy((LEARNED, SUFFIX))
    both.state = replace(
        both.state, draft={**both.state.draft, SUFFIX: profiled_drafts([(1, 8, 0.3)])}
    )
    told = [replace(moment, arms=(SUFFIX, LEARNED)) for moment in moments(20)]
    shadows = [d.shadow for d in play(both, told, right=8) if d.shadow is not None]
    assert {shadow.arm for shadow in shadows} == {LEARNED}


def test_a_useless_drafter_is_never_verified_for_long() -> None:
    decisions = play(make_policy(), moments(300), right=0)
    assert sum(d.plans["default"].depth > 0 for d in decisions) <= 16
    assert decisions[-1].plans["default"].reason == "no-gain"


def test_where_not_even_luck_would_make_it_pay_an_unknown_mechanism_waits() -> None:
    """In a batch of 64, with blocks that take a fifth of a step, it waits until noticing changes is
    worth that; alone it is tried at once."""
    first = {}
    for clients in (1, 64):
        policy = make_policy()
        dear = profiled_drafts([(1, 8, 0.004), (64, 8, 0.2)])
        policy.state = replace(policy.state, draft={SUFFIX: dear})
        decisions = play(policy, moments(400, clients=clients), right=1)
        first[clients] = next(i for i, d in enumerate(decisions) if d.shadow is not None)
        assert (
            clients == 1 or policy.state.purse.spent_s <= VAIN_SHARE * policy.state.purse.elapsed_s
        )
    assert first[1] < 4
    assert first[64] > 40


def test_a_batch_at_rest_whose_plan_still_stands_is_looked_at_seldom_too() -> None:
    """Requests that may not be asked leave a plan as it was; that is no drafting."""
    policy = make_policy()
    play(policy, moments(60), right=8)
    assert policy.state.held.picks["default"].depth > 0
    looks = set()
    for moment in moments(400, 60, limit=0):
        play(policy, [moment], right=8)
        looks.add(policy._at)
    assert len([at for at in looks if at >= 260]) <= 200 / CALM_EVERY + 2


def test_a_choice_that_stays_at_standard_decode_is_looked_at_seldom_and_a_change_at_once() -> None:
    policy = make_policy()
    play(policy, moments(300), right=0)
    looks = {policy._at}
    for moment in moments(160, 300):
        play(policy, [moment], right=0)
        looks.add(policy._at)
    assert len(looks) <= 160 / CALM_EVERY + 2
    policy.turned({"default": 1.0})
    play(policy, moments(1, 460), right=0)
    assert policy._at == 460


def test_a_drafter_that_never_answers_is_left_to_shadows() -> None:
    policy = make_policy()
    play(policy, moments(60), right=8)
    decisions = play(policy, moments(400, 60), right=None)
    assert decisions[-1].plans["default"].depth == 0
    assert decisions[-1].plans["default"].reason in ("no-gain", "held")


def test_depth_falls_as_the_batch_grows_and_returns_without_flapping() -> None:
    """Pitfalls S47 and R06: D is spent before replicas are added, under a square wave of load, and
    neither edge makes it flap."""
    policy = make_policy()
    play(policy, moments(60), right=3)
    step, changes, last = 60, 0, policy.state.held.picks["default"]
    for clients in (1, 64) * 5:
        decisions = play(policy, moments(40, step, clients=clients), right=3)
        step += 40
        for decision in decisions:
            plan = decision.plans["default"]
            changes += (plan.arm, plan.depth) != (last.arm, last.depth)
            last = plan
        assert (last.depth == 0) == (clients == 64)
    assert changes <= 12


def test_configured_off_and_no_drafter_and_a_wish_of_none_are_standard_decode() -> None:
    off = make_policy(depth=0)
    assert off.decide(make_moment(0)).plans["default"].reason == "off"
    assert off.decide(make_moment(0)).shadow is None
    nobody = make_policy()
    moment = replace(make_moment(0), arms=())
    assert nobody.decide(moment).plans["default"].reason == "no-drafter"
    wished = make_policy()
    decisions = play(wished, moments(60, limit=0), right=8)
    assert all(d.plans["default"].depth == 0 for d in decisions)
    offer = Offer("default", 8, wish=2)
    believing = make_policy()
    decision = play(believing, moments(60), right=8)[-1]
    assert believing.rows(make_moment(60), decision, [offer])[0].depth <= 2


def test_one_request_leaves_nothing_behind_but_its_cohorts_estimates() -> None:
    """Pitfall S48: another cohort decides as if the first had never been; what the caller gave is
    not changed; the state is all there is."""
    drafts = {SUFFIX: profiled_drafts([(1, 8, 0.0001)])}
    given = copy.deepcopy(drafts)
    policy = Adaptive(make_policy().state.step_cost, drafts, windows=NO_WINDOWS)
    play(policy, moments(100), right=0)
    assert drafts.keys() == given.keys()
    assert drafts[SUFFIX].scale == given[SUFFIX].scale
    other = make_policy()
    other.state = policy.state
    moment = make_moment(100)
    assert other.decide(moment) == policy.decide(moment)
    assert ("new", "suffix") not in policy.state.estimates
    assert "new" not in policy.state.held.picks


def test_control_windows_are_standard_decode_for_everybody() -> None:
    policy = make_policy(windows=Windows())
    decisions = play(policy, moments(1280), right=8)
    control = [d for d in decisions if d.kind == "control"]
    assert len(control) == 20
    assert all(
        d.plans["default"]
        == replace(d.plans["default"], arm=None, depth=0, ask=0, reason="control")
        for d in control
    )


def test_a_cohort_that_speculation_slows_down_goes_to_standard_decode_and_comes_back() -> None:
    """Law L4: where the model says gain and the control says loss, the control is believed."""
    policy = make_policy(windows=Windows())
    decisions = play(policy, moments(128 * 11), right=8, speedup=0.9)
    assert decisions[-1].plans["default"].reason == "slower"
    fallen = policy.state.ledgers["default"]
    assert fallen.fallen
    decisions = play(policy, moments(128 * 20, 128 * 11), right=8, speedup=1.5)
    probes = [d for d in decisions if d.plans["default"].reason == "probe"]
    assert 2 <= len(probes) <= 40
    assert all(d.kind == "probe" for d in probes)
    assert not policy.state.ledgers["default"].fallen
    assert decisions[-1].plans["default"].depth > 0


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_where_shadows_say_nothing_probes_find_out_at_one_step_in_a_hundred(rule: Rule) -> None:
    policy = make_policy()
    decisions = play(policy, moments(1500, clients=2, rule=rule), right=8)
    assert all(d.shadow is None for d in decisions)
    probes = [d for d in decisions if d.plans["default"].reason == "probe"]
    assert 1 <= len(probes) <= 16
    assert decisions[-1].plans["default"].depth > 0
    useless = play(make_policy(), moments(1500, clients=2, rule=rule), right=0)
    assert sum(d.plans["default"].depth > 0 for d in useless) <= 30


def test_a_costs_alarm_lets_choices_be_made_anew_and_says_nothing_of_texts() -> None:
    """Drafted rows become so dear that what was held on to would be held on to no longer."""
    policy = make_policy()
    play(policy, moments(200), right=0)
    known, looked = policy.state.changed, policy._at
    for moment in moments(60, 200):
        play(policy, [moment], right=0, factor=2.0)
        if policy.state.step_cost.alarms:
            break
    play(policy, moments(1, moment.step + 1), right=0, factor=2.0)
    assert policy._at == moment.step + 1 > looked
    assert policy.state.changed == known


def test_deeper_blocks_are_asked_for_where_they_are_free() -> None:
    decision = play(make_policy(), moments(60), right=2)[-1].plans["default"]
    assert 2 <= decision.depth <= 4
    assert decision.ask == 8


def test_when_blocks_are_a_surprise_another_mechanism_is_looked_at_at_once() -> None:
    """What is in use brings something else than it did, and not yet for long enough to be a change:
    how the other does by now is asked in the next step, not when its turn comes."""
    policy = make_policy((SUFFIX, LEARNED))
    told = [replace(moment, arms=(SUFFIX, LEARNED)) for moment in moments(300)]
    used = play(policy, told[:242], right=8)[-1].plans["default"].arm
    assert used is not None
    step, before = 242, policy.state.changed
    while not suspicious(policy.state.estimates["default", used.mechanism].watch):
        play(policy, told[step : step + 1], right=0)
        step += 1
    assert policy.state.changed == before
    assert not turn(policy.windows.seed, step)
    assert policy.decide(told[step]).shadow is not None


def test_in_mixed_batches_with_drafters_that_come_and_go_no_limit_is_exceeded() -> None:
    policy, dice = make_policy((SUFFIX, LEARNED), windows=Windows()), random.Random(1)
    drafted = 0
    for step in range(440):
        present = dice.sample(["a", "b", "c"], dice.randint(1, 3))
        groups = [Group(c, dice.randint(1, 3), dice.choice([0, 2, 8])) for c in present]
        arms = [arm for arm in (SUFFIX, LEARNED) if dice.random() < 0.9]
        rule: Rule = dice.choice(["greedy", "coupled", "rejection"])
        moment = Moment(step, groups, arms, rule, other_rows=dice.choice([0, 0, 16]))
        decision, blocks = policy.decide(moment), {}
        assert set(decision.plans) == set(present)
        for cohort, plan in decision.plans.items():
            most = max(group.limit for group in groups if group.cohort == cohort)
            assert plan.depth <= most
            assert (plan.arm is None) == (plan.depth == 0)
            assert plan.reason in MEANING
            if plan.arm is not None:
                assert plan.arm in arms
                assert plan.depth <= plan.ask <= plan.arm.max_depth
                drafted += 1
                right = dice.randint(plan.ask // 2, plan.ask)
                blocks[cohort, plan.arm.mechanism] = [Scored(plan.ask, plan.ask, right)]
        if (shadow := decision.shadow) is not None:
            assert rule != "rejection"
            assert shadow.arm in arms
            found = [Scored(shadow.depth, shadow.depth, shadow.depth, False)] * shadow.rows
            blocks[shadow.cohort, shadow.arm.mechanism] = found
        tokens = dict.fromkeys(present, 1.0)
        policy.learn(Outcome(moment, decision, moment.writers, 0.010, 0.011, tokens, blocks))
    assert drafted > 100


def test_every_reason_has_a_meaning_and_the_page_has_them_all() -> None:
    assert set(MEANING) == set(get_args(Reason))
    page = Path(__file__).parents[3] / "docs" / "policy.md"
    text = page.read_text()
    assert [reason for reason in MEANING if f"`{reason}`" not in text] == []
