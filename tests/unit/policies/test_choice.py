"""The choice has the highest expected tokens per second, within every limit."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.choice import STANDARD, Arm, Batch, Group, Pick, choose
from policies.estimate import Outlook
from tests.unit.policies.choices import (
    LEARNED,
    SUFFIX,
    geometric,
    groups,
    line,
    make_batch,
    make_costs,
    outlooks,
    rising,
    views,
)

Views = dict[str, dict[Arm, Outlook]]
PICKS = [STANDARD, *(Pick(arm, d) for arm in (SUFFIX, LEARNED) for d in range(1, 5))]
tables = st.lists(st.floats(0.0001, 0.05), min_size=8, max_size=8).map(lambda v: rising(v * 25))


@settings(max_examples=40)
@given(outlooks, outlooks, st.integers(1, 8), st.integers(0, 4), tables, st.floats(0, 0.05))
def test_no_other_choice_of_one_cohort_has_a_higher_rate(
    suffix: Outlook, learned: Outlook, clients: int, limit: int, step_s, learned_s: float
) -> None:
    batch = Batch(
        [Group("a", clients, limit)],
        {"a": {SUFFIX: suffix, LEARNED: learned}},
        make_costs(step_s, learned_s),
    )
    picks, rate = choose(batch, {})
    assert rate == pytest.approx(batch.rate(picks))
    assert rate >= max(batch.rate({"a": pick}) for pick in PICKS) * (1 - 1e-12)


@settings(max_examples=40)
@given(groups, views, tables)
def test_the_choice_is_never_below_what_is_held_nor_standard_decode_and_no_single_change_helps(
    batch_of: list[Group], known: Views, step_s
) -> None:
    batch = Batch(batch_of, known, make_costs(step_s))
    held = dict.fromkeys(batch.cohorts, Pick(SUFFIX, 2))
    picks, rate = choose(batch, held)
    assert rate >= max(batch.rate(held), batch.rate({})) * (1 - 1e-12)
    again, better = choose(batch, picks)
    assert better <= rate * (1 + 1e-9) or again != picks


@settings(max_examples=40)
@given(groups, views, tables)
def test_no_limit_is_ever_exceeded(batch_of: list[Group], known: Views, step_s) -> None:
    picks, _ = choose(Batch(batch_of, known, make_costs(step_s)), {})
    for cohort, pick in picks.items():
        deepest = max(group.limit for group in batch_of if group.cohort == cohort)
        most = 0 if pick.arm is None else min(pick.arm.max_depth, deepest)
        assert (pick.depth == 0) == (pick.arm is None)
        assert pick.depth <= most


@settings(max_examples=40)
@given(outlooks, outlooks, st.integers(1, 8), tables, st.data())
def test_more_acceptance_never_lowers_the_rate_nor_turns_the_choice_away(
    suffix: Outlook, learned: Outlook, clients: int, step_s, data: st.DataObject
) -> None:
    def choice(views: dict[Arm, Outlook]) -> tuple[Pick, float]:
        batch = Batch([Group("a", clients, 4)], {"a": views}, make_costs(step_s))
        picks, rate = choose(batch, {})
        return picks["a"], rate

    pick, rate = choice({SUFFIX: suffix, LEARNED: learned})
    share = data.draw(st.floats(0, 1))
    known = {SUFFIX: suffix, LEARNED: learned}
    for arm, view in known.items():
        better = tuple(s + share * (1 - s) for s in view.survive)
        raised, higher = choice({**known, arm: Outlook(better, view.reach)})
        assert higher >= rate * (1 - 1e-12)
        if pick.arm == arm:
            assert raised.arm == arm


@settings(max_examples=40)
@given(outlooks, outlooks, st.integers(1, 8), tables, st.floats(0, 0.1), st.floats(0, 0.1))
def test_dearer_drafts_and_steps_never_raise_the_rate(
    suffix: Outlook, learned: Outlook, clients: int, step_s, draft_s: float, more_s: float
) -> None:
    known = {"a": {SUFFIX: suffix, LEARNED: learned}}
    writing = [Group("a", clients, 4)]
    picks, rate = choose(Batch(writing, known, make_costs(step_s, draft_s)), {})
    dear, less = choose(Batch(writing, known, make_costs(step_s, draft_s + more_s)), {})
    assert less <= rate * (1 + 1e-12)
    if picks["a"].arm != LEARNED:
        assert dear == picks
    _, slow = choose(
        Batch(writing, known, make_costs(lambda rows: step_s(rows) + more_s, draft_s)), {}
    )
    assert slow <= rate * (1 + 1e-12)


def test_standard_decode_is_chosen_where_rows_are_dear_and_nothing_is_known() -> None:
    dear = make_costs(line(0.0, 0.01))
    assert choose(make_batch({SUFFIX: 0.9}, 8, dear), {})[0] == {"default": STANDARD}
    assert choose(make_batch({}), {})[0] == {"default": STANDARD}


def test_the_depth_ends_where_a_stair_ends() -> None:
    def stairs(rows: float) -> float:
        return 0.010 if rows <= 3 else 0.018

    costs = make_costs(stairs)
    assert choose(make_batch({SUFFIX: 0.7}, 1, costs), {})[0]["default"] == Pick(SUFFIX, 2)


def test_a_wish_of_some_bounds_them_and_nobody_else() -> None:
    known = {"a": {SUFFIX: geometric(0.9)}}
    batch = Batch([Group("a", 2, 0), Group("a", 1, 4)], known, make_costs(line(0.01, 0.0001)))
    picks, rate = choose(batch, {})
    assert picks["a"] == Pick(SUFFIX, 4)
    seconds = 0.01 + 0.0001 * (3 + 4)
    assert rate == pytest.approx((3 + sum(0.9**k for k in range(1, 5))) / seconds)


def test_cohorts_of_one_batch_choose_apart_and_pay_for_the_longest_draft_together() -> None:
    known = {
        "copy": {SUFFIX: geometric(0.9), LEARNED: geometric(0.8)},
        "chat": {SUFFIX: geometric(0.1), LEARNED: geometric(0.8)},
    }
    writing = [Group("copy", 1, 4), Group("chat", 1, 4)]
    costs = make_costs(line(0.010, 0.0001), 0.002)
    batch = Batch(writing, known, costs)
    picks, rate = choose(batch, {})
    everything = [batch.rate({"copy": a, "chat": b}) for a, b in itertools.product(PICKS, repeat=2)]
    assert rate == pytest.approx(max(everything))
    assert (picks["copy"].arm, picks["chat"].arm) == (SUFFIX, LEARNED)
