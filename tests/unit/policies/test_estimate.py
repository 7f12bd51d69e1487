"""What is known of drafting, by cohort and mechanism."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.acceptance import Acceptance, added, faded, survival
from policies.change import suspicious
from policies.estimate import (
    ENOUGH_BLOCKS,
    KEPT_BLOCKS,
    NEWEST,
    Estimates,
    Rule,
    Scored,
    evidence,
    fair,
    forgotten,
    learnt,
    outlook,
)

KEY = ("chat", "suffix")
blocks = st.integers(1, 8).flatmap(
    lambda asked: st.integers(0, asked).flatmap(
        lambda size: st.integers(0, size).map(lambda right: Scored(asked, size, right))
    )
)


def draws(count: int, rates: list[float], seed: int = 0, depth: int = 4) -> list[Scored]:
    dice, result = random.Random(seed), []
    for _ in range(count):
        right = 0
        while right < depth and dice.random() < rates[min(right, len(rates) - 1)]:
            right += 1
        result.append(Scored(depth, depth, right))
    return result


def after(sets: list[list[Scored]], known: Estimates | None = None) -> Estimates:
    known = {} if known is None else known
    for step, found in enumerate(sets):
        known, _ = learnt(known, KEY, found, step)
    return known


def test_positions_behind_a_rejection_are_unknown_and_not_rejected() -> None:
    state = added(Acceptance(), [(4, 1)])
    assert state.decided == (1.0, 1.0)
    assert state.accepted == (1.0, 0.0)
    whole = added(state, [(2, 2)])
    assert whole.decided == (2.0, 2.0)
    assert whole.accepted == (2.0, 1.0)


def test_rates_of_each_position_are_found() -> None:
    known = after([draws(4, [0.8, 0.5, 0.9], seed) for seed in range(400)])
    view = outlook(known, *KEY, 4, 400)
    for k, expected in enumerate((0.8, 0.4, 0.36, 0.324)):
        assert view.survive[k] == pytest.approx(expected, abs=0.05)
    assert view.reach[0] > 0.99


def test_blocks_that_do_not_come_are_no_rejections() -> None:
    half = [[Scored(4, 4, 4), Scored(4, 0, 0)]] * 200
    view = outlook(after(half), *KEY, 4, 200)
    assert view.survive[3] > 0.98
    assert view.reach[0] == pytest.approx(0.5, abs=0.02)
    assert view.reach == pytest.approx((view.reach[0],) * 4, abs=0.02)


@given(st.lists(blocks, min_size=1, max_size=30), st.integers(1, 8))
def test_more_accepted_at_a_position_never_lowers_an_outlook(
    found: list[Scored], position: int
) -> None:
    state = added(Acceptance(), [(b.size, b.right) for b in found if b.size])
    if len(state.decided) < position:
        return
    more = list(state.accepted)
    more[position - 1] = state.decided[position - 1]
    better = survival(Acceptance(state.decided, tuple(more)), 8)
    assert all(b >= a for a, b in zip(survival(state, 8), better, strict=True))


@given(st.lists(st.lists(blocks, max_size=4), max_size=20))
def test_outlooks_never_rise_with_depth_and_hope_never_lowers_them(
    sets: list[list[Scored]],
) -> None:
    known = after(sets)
    for sigmas in (0.0, 1.28):
        view = outlook(known, *KEY, 8, 20, sigmas)
        for values in (view.survive, view.reach):
            assert list(values) == sorted(values, reverse=True)
            assert all(0.0 <= value <= 1.0 for value in values)
    plain, hopeful = outlook(known, *KEY, 8, 20), outlook(known, *KEY, 8, 20, 1.28)
    assert all(h >= p for p, h in zip(plain.survive, hopeful.survive, strict=True))


@pytest.mark.parametrize("rule", ["greedy", "coupled"])
def test_shadows_count_like_verdicts_where_the_text_does_not_depend_on_drafts(rule: Rule) -> None:
    shadow, verdict = Scored(4, 4, 2, verified=False), Scored(4, 4, 2)
    assert fair([shadow, verdict], rule) == [shadow, verdict]
    assert after([[shadow]] * 9) == after([[verdict]] * 9)


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_only_verdicts_count_where_the_target_draws_anew(rule: Rule) -> None:
    shadow, verdict = Scored(4, 4, 2, verified=False), Scored(4, 4, 2)
    assert fair([shadow, verdict], rule) == [verdict]


def test_a_change_of_text_drops_what_was_known_of_the_cohort_for_every_mechanism() -> None:
    known = after([draws(2, [0.9], seed) for seed in range(200)])
    known, _ = learnt(known, ("chat", "learned"), draws(50, [0.8]), 200)
    known, _ = learnt(known, ("code", "learned"), draws(50, [0.8]), 200)
    before, changed, step = known, False, 201
    while not changed:
        known, changed = learnt(known, KEY, [Scored(4, 4, 0)] * 2, step)
        step += 1
    assert step < 210
    for mechanism in ("suffix", "learned"):
        kept = evidence(known, "chat", mechanism, step)
        assert kept < 0.2 * evidence(before, "chat", mechanism, step)
    assert known["code", "learned"] == before["code", "learned"]


def test_after_a_change_what_came_with_it_is_all_that_is_believed() -> None:
    """Of the mechanism that gave it away, and of another whose blocks came meanwhile."""
    other = "chat", "learned"
    known: Estimates = {}
    for step in range(200):
        known, _ = learnt(known, KEY, draws(2, [0.9], step), step)
        known, _ = learnt(known, other, [Scored(4, 4, step % 3)], step)
    changed, step = False, 200
    while not changed:
        known, _ = learnt(known, other, [Scored(4, 4, 2)], step)
        known, changed = learnt(known, KEY, [Scored(4, 4, 0)] * 2, step)
        step += 1
    since = step - 200
    assert since < NEWEST
    assert known[KEY].accept.accepted[0] < 0.3 * known[KEY].accept.decided[0]
    assert known[KEY].accept.decided[0] == pytest.approx(2 * since, abs=4)
    assert known[other].accept.decided[0] == pytest.approx(max(since, KEPT_BLOCKS), abs=2)
    assert known[other].accept.accepted[1] >= since - 1


def test_a_change_is_noticed_once_for_all_mechanisms() -> None:
    known = after([draws(2, [0.9], seed) for seed in range(200)])
    for step in range(200, 240):
        known, _ = learnt(known, ("chat", "learned"), draws(2, [0.9], step), step)
    known, _ = learnt(known, ("chat", "learned"), [Scored(4, 4, 0)] * 2, 240)
    assert suspicious(known["chat", "learned"].watch)
    dropped = forgotten(known, "chat", 240)
    assert not suspicious(dropped["chat", "learned"].watch)


def test_what_falls_short_of_everyone_is_expected_to_do_so_behind_and_what_exceeds_is_not() -> None:
    everyone = Acceptance((100.0,) * 4, (90.0,) * 4)
    poor, good = Acceptance((20.0,), (4.0,)), Acceptance((20.0,), (20.0,))
    plain = [survival(own, 4, everyone, 4.0) for own in (poor, good)]
    carried = [survival(own, 4, everyone, 4.0, carry=True) for own in (poor, good)]
    assert carried[0][0] == plain[0][0]
    assert all(c < 0.5 * p for c, p in zip(carried[0][1:], plain[0][1:], strict=True))
    assert carried[1] == plain[1]


def test_a_cohort_that_is_new_starts_from_everyone_and_ends_with_its_own() -> None:
    known = after([draws(4, [0.9], seed) for seed in range(100)])
    new = outlook(known, "new", "suffix", 1, 100)
    assert new.survive[0] == pytest.approx(0.9, abs=0.04)
    assert evidence(known, "new", "suffix", 100) >= ENOUGH_BLOCKS
    for step in range(100, 140):
        known, _ = learnt(known, ("new", "suffix"), draws(4, [0.2], step), step)
    assert outlook(known, "new", "suffix", 1, 140).survive[0] == pytest.approx(0.2, abs=0.08)


def test_nothing_is_known_of_what_was_never_seen() -> None:
    assert evidence({}, "chat", "suffix", 5) == 0.0
    assert learnt({}, KEY, [], 3) == ({}, False)


def test_evidence_fades_with_steps_whether_or_not_it_is_used() -> None:
    known = after([draws(40, [0.8])])
    assert evidence(known, *KEY, 400) < 0.45 * evidence(known, *KEY, 0)
    assert outlook(known, *KEY, 1, 100_000) == outlook(known, "new", "suffix", 1, 0)


def test_forgetting_keeps_rates_and_little_evidence() -> None:
    known = after([draws(40, [0.8])])
    dropped = forgotten(known, "chat")[KEY].accept
    kept = known[KEY].accept
    assert dropped == faded(kept, dropped.decided[0] / kept.decided[0])


@pytest.mark.parametrize("bad", [(0, 0, 0), (2, 3, 0), (2, 1, 2), (2, -1, 0), (2, 2, -1)])
def test_what_is_no_block_is_refused(bad: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="not a block"):
        Scored(*bad)
