"""What asking takes is what steps with asks take more than steps without."""

from __future__ import annotations

import pytest

from actors.engine.asking import NEWEST, Asking
from policies.choice import Arm

SUFFIX = Arm("suffix", remote=False)
EAGLE = Arm("eagle3", remote=True)


def test_nothing_is_known_before_both_kinds_of_steps_were_seen() -> None:
    asking = Asking()
    assert asking.step_s(SUFFIX) == asking.each_s("suffix") == 0.0
    asking.asked(SUFFIX, 4, 0.5)
    assert asking.step_s(SUFFIX) == asking.each_s("suffix") == 0.0


def test_what_a_step_takes_more_is_shared_by_those_who_are_asked() -> None:
    asking = Asking()
    for _ in range(100):
        asking.still(0.1)
        asking.asked(SUFFIX, 4, 0.5)
        asking.asked(EAGLE, 2, 1.1)
    assert asking.step_s(SUFFIX) == pytest.approx(0.4)
    assert asking.each_s("suffix") == pytest.approx(0.1)
    assert asking.each_s("eagle3") == pytest.approx(0.5)


def test_steps_that_take_less_with_asks_than_without_make_asking_free_and_not_cheaper() -> None:
    asking = Asking()
    asking.still(0.1)
    asking.asked(SUFFIX, 4, 0.05)
    assert asking.step_s(SUFFIX) == asking.each_s("suffix") == 0.0


def test_a_few_long_steps_move_no_price() -> None:
    asking = Asking()
    asking.still(0.1)
    for beside_s in (5.0, 0.2, 0.2, 7.0, 0.2):
        asking.asked(SUFFIX, 1, beside_s)
    assert asking.each_s("suffix") == pytest.approx(0.1)


def test_a_price_follows_what_steps_take() -> None:
    asking = Asking()
    asking.still(0.1)
    for beside_s in [0.2] * 100 + [0.3] * NEWEST:
        asking.asked(SUFFIX, 1, beside_s)
    assert asking.step_s(SUFFIX) == pytest.approx(0.2)
