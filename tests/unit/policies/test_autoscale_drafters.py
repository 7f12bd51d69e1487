"""Drafters by busy share and late blocks; pools that sleep and are woken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import autoscale_pool as pools
from policies.autoscale import Limits, Memory, steadied
from policies.autoscale_drafters import REMEMBERED, DrafterLoad, DrafterTargets, Late, demand
from policies.autoscale_pool import HOLD_S, LOOK_S, REST_S, Pool, Want

TARGETS = DrafterTargets(busy_share=0.5, late_share=0.1)
DOWN_S = 60.0


def asked(*loads: DrafterLoad, late: Late | None = None, now_s: float = 0.0) -> Any:
    return demand(loads, TARGETS, late or Late(), now_s, DOWN_S)


def test_drafters_are_as_many_as_their_work_fills_to_the_target() -> None:
    assert asked(DrafterLoad(0.5))[1].add == 1
    assert asked(DrafterLoad(0.51))[1].add == 2
    assert asked(DrafterLoad(0.9), DrafterLoad(0.8))[1].add == 4


def test_late_blocks_of_busy_drafters_ask_for_more() -> None:
    signal, look, _ = asked(DrafterLoad(0.4, late_share=0.15))
    assert (signal, look.add) == ("late", 2)


def test_late_blocks_of_idle_drafters_do_not() -> None:
    assert asked(DrafterLoad(0.1, late_share=0.9))[1].add == 1


def test_a_pool_that_nobody_wants_needs_none_however_busy() -> None:
    signal, look, _ = asked(DrafterLoad(0.9, wanted=False), DrafterLoad(0.9, wanted=False))
    assert (signal, look.add, look.keep) == ("unwanted", 0, 0)


def test_a_wanted_pool_keeps_one_drafter_with_nothing_to_do() -> None:
    assert asked(DrafterLoad(0.0), DrafterLoad(0.0, wanted=False))[1].add == 1


def test_a_count_at_which_blocks_were_late_is_not_tried_again_at_once() -> None:
    _, _, late = asked(DrafterLoad(0.4, late_share=0.2), now_s=100.0)
    calm = [DrafterLoad(0.1), DrafterLoad(0.1)]
    still_s = 100.0 + REMEMBERED * DOWN_S
    assert asked(*calm, late=late, now_s=still_s)[1].keep == 2
    assert asked(*calm, late=late, now_s=still_s + 1)[1].keep == 1


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6),
    st.floats(0, 1),
)
def test_busier_drafters_never_ask_for_fewer(
    shares: list[tuple[float, float]], more: float
) -> None:
    loads = [DrafterLoad(busy, late) for busy, late in shares]
    first = DrafterLoad(max(loads[0].busy_share, more), loads[0].late_share)
    before, after = asked(*loads)[1], asked(first, *loads[1:])[1]
    assert 1 <= before.add <= after.add
    assert before.keep <= after.keep


@pytest.mark.parametrize("work", [0.3, 0.9, 1.4, 2.6])
def test_drafters_that_share_constant_work_come_to_rest(work: float) -> None:
    """Blocks are late as queues are long; more drafters make both go away, and that must not be
    the reason for which they go."""
    limits = Limits(0, 16, 3.0, DOWN_S, DOWN_S)
    count, memory, late = 1, Memory(), Late()
    changes: list[int] = []
    for second in range(int(4 * REMEMBERED * DOWN_S)):
        busy = min(work / count, 1.0)
        load = DrafterLoad(busy, late_share=busy**3)
        _, look, late = demand([load] * count, TARGETS, late, float(second), DOWN_S)
        before = count
        count, memory = steadied(memory, look, count, float(second), limits)
        changes += [second] if count != before else []
    assert len(changes) <= 5
    assert all(second < 2 * REMEMBERED * DOWN_S for second in changes)


# ------------------------------------------------------------------ pools


class Clocked:
    """A pool, its verifiers' wishes each second, and whether a drafter is up."""

    def __init__(self) -> None:
        self.pool, self.now_s, self.up = Pool(), 0.0, 0

    def second(self, *wants: Want, after_s: float = 1.0) -> bool:
        """Whether it is woken."""
        self.now_s += after_s
        self.pool = pools.heard(self.pool, wants, self.up, self.now_s)
        woken, self.pool = pools.woken(self.pool, wants, self.now_s)
        return woken

    @property
    def wanted(self) -> bool:
        return pools.wanted(self.pool, self.now_s)


def test_a_pool_in_use_is_wanted_and_one_that_is_not_no_longer() -> None:
    clock = Clocked()
    clock.up = 1
    clock.second("used")
    assert clock.wanted
    clock.second(after_s=HOLD_S - 1)
    assert clock.wanted
    clock.second(after_s=2.0)
    assert not clock.wanted


def test_evidence_alone_keeps_no_pool_up() -> None:
    clock = Clocked()
    clock.up = 1
    for _ in range(100):
        clock.second("due")
    assert not clock.wanted


@pytest.mark.parametrize("want", ["used", "gain"])
def test_a_wish_wakes_a_sleeping_pool_at_once(want: Want) -> None:
    clock = Clocked()
    assert not clock.second()
    assert clock.second(want)


def test_a_mechanism_that_nobody_has_seen_is_looked_at_at_once() -> None:
    assert Clocked().second("due")


def test_a_pool_that_is_up_is_not_woken() -> None:
    clock = Clocked()
    clock.up = 1
    assert not clock.second("used")


def look_in_vain(clock: Clocked) -> None:
    """It comes up, is looked at, is not used, and goes."""
    clock.up = 1
    clock.second("due")
    assert clock.wanted
    clock.second("due", after_s=LOOK_S + 1)
    assert not clock.wanted
    clock.up = 0
    clock.second()


def test_each_look_in_vain_doubles_the_rest_before_the_next() -> None:
    clock = Clocked()
    assert clock.second("due")
    for vain in (1, 2, 3):
        look_in_vain(clock)
        rest_s = REST_S * 2**vain
        assert not clock.second("due", after_s=rest_s - 2)
        assert clock.second("due", after_s=3.0)


def test_a_look_that_led_to_use_ends_the_row_of_vain_ones() -> None:
    clock = Clocked()
    clock.second("due")
    look_in_vain(clock)
    clock.second("due", after_s=REST_S * 4)
    clock.up = 1
    clock.second("used")
    clock.up = 0
    clock.second(after_s=HOLD_S)
    assert not clock.second("due", after_s=REST_S - 1)
    assert clock.second("due", after_s=2.0)
