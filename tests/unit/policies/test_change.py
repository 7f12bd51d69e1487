"""Changes are seen soon, and quiet is not mistaken for one."""

from __future__ import annotations

import random

from policies.change import WIDEST, Cusum, calmed, suspicious, watched


def alarms(deviations: list[float]) -> list[int]:
    state, result = Cusum(), []
    for i, deviation in enumerate(deviations):
        state, alarm = watched(state, deviation)
        if alarm:
            result.append(i)
    return result


def test_quiet_raises_no_alarm_and_a_shift_does_on_either_side() -> None:
    dice = random.Random(1)
    quiet = [dice.gauss(0, 1) for _ in range(1000)]
    assert alarms(quiet) == []
    for shift in (1.5, -1.5):
        later = [dice.gauss(shift, 1) for _ in range(60)]
        first = alarms(quiet + later)[0]
        assert 1000 < first < 1025


def test_an_alarm_says_how_many_observations_ago_the_change_came() -> None:
    for sign in (1.0, -1.0):
        state, alarm = Cusum(), 0
        for deviation in (0.0, 1.0, -2.0, 0.3, *[2.0] * 5):
            assert not alarm
            state, alarm = watched(state, sign * deviation)
        assert alarm == 5
        assert state == calmed(state)


def test_where_a_change_came_is_found_within_a_few_observations() -> None:
    dice, missed = random.Random(3), []
    for _ in range(50):
        state, alarm, seen = Cusum(), 0, 0
        while not alarm:
            seen += 1
            state, alarm = watched(state, dice.gauss(1.5 * (seen > 200), 1))
        missed.append(abs(seen - 200 - alarm))
    assert sorted(missed)[35] <= 4


def test_no_single_step_raises_the_alarm() -> None:
    assert alarms([1e9]) == []
    surprised, alarm = watched(Cusum(), 1e9)
    assert surprised.up < WIDEST
    assert suspicious(surprised)
    assert not alarm
    assert not suspicious(Cusum())


def test_blocks_that_scatter_widely_need_a_larger_shift() -> None:
    dice = random.Random(2)
    wild = [dice.gauss(0, 2.5) for _ in range(2000)]
    narrow = Cusum()
    for deviation in wild:
        narrow, _ = watched(narrow, deviation)
    assert narrow.spread > 3.0
    assert len(alarms(wild[500:])) <= 6
