"""What operators set while serving: which version is the newest, and the plans that follow."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from policies.control import Windows
from policies.live import Live, Settings, changed, deployed, newer, plans

FOUR = Settings(4)


def test_the_same_deployment_again_leaves_what_was_changed_since() -> None:
    first = deployed(None, FOUR)
    now = changed(first, Settings(2), 100)
    assert deployed(now, Settings(4), 200) == now
    other = deployed(now, Settings(6), 200)
    assert other.settings.depth == 6
    assert other.changed == 200


def test_one_that_starts_takes_the_changes_that_others_remember() -> None:
    before = changed(deployed(None, FOUR), Settings(2), 100)
    started = deployed(deployed(None, Settings(8)), FOUR)
    assert started.changed == 0
    assert newer(started, before) == before


def test_changes_to_another_deployment_are_of_no_concern() -> None:
    before = changed(deployed(None, FOUR), Settings(2), 100)
    started = deployed(None, Settings(4, off=True))
    assert newer(started, before) == started


def test_a_deployment_that_comes_back_is_newer_than_the_changes_made_to_it_then() -> None:
    long_ago = changed(deployed(None, FOUR), Settings(1), 100)
    between = deployed(long_ago, Settings(6), 200)
    back = deployed(between, FOUR, 300)
    assert newer(back, long_ago) == back


@given(st.lists(st.integers(0, 50), min_size=2, max_size=6))
def test_a_later_change_is_newer_whatever_the_clock_says(clock: list[int]) -> None:
    lives = [deployed(None, FOUR)]
    for number, now_ns in enumerate(clock):
        lives.append(changed(lives[-1], Settings(number), now_ns))
    assert all(newer(a, b) == b and newer(b, a) == b for a, b in pairwise(lives))


@given(st.permutations([0, 10, 20, 30]))
def test_in_whatever_order_versions_are_heard_the_newest_stays(order: list[int]) -> None:
    base = deployed(None, FOUR)
    now = base
    for number in order:
        now = newer(now, Live(Settings(number), base.base, number))
    assert now.changed == 30


def test_every_setting_counts_in_what_was_deployed() -> None:
    every = [
        FOUR,
        Settings(3),
        Settings(4, off=True),
        Settings(4, windows=Windows(steps=1)),
        Settings(4, limits={"code": 2}),
    ]
    assert len({deployed(None, settings).base for settings in every}) == len(every)


def test_a_limit_caps_its_cohort_and_never_raises_it() -> None:
    settings = Settings(6, limits={"code": 8, "batch": 0, "chat": 2})
    fallback, cohorts = plans(settings, most=5, drafters_up=1, colocated=False)
    assert fallback.depth == 5
    assert {name: (plan.depth, plan.reason) for name, plan in cohorts.items()} == {
        "batch": (0, "off"),
        "chat": (2, "configured"),
        "code": (5, "configured"),
    }


def test_off_is_off_for_everybody_and_without_drafters_nobody_drafts() -> None:
    settings = Settings(6, off=True, limits={"code": 4})
    fallback, cohorts = plans(settings, most=8, drafters_up=1, colocated=True)
    assert {(plan.depth, plan.reason) for plan in (fallback, *cohorts.values())} == {(0, "off")}
    _, cohorts = plans(Settings(6, limits={"code": 4}), most=8, drafters_up=0, colocated=False)
    assert cohorts["code"].reason == "no-drafter"
