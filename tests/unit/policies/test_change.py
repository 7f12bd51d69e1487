"""Changes are seen soon, and quiet is not mistaken for one."""

from __future__ import annotations

import random

from policies.change import WIDEST, Cusum, suspicious, watched


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
