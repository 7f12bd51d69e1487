"""Standard decode stays measured, and a cohort it beats goes back to it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.control import Windows
from policies.control_ratio import (
    LEAST_PAIRS,
    MEMORY,
    Ledger,
    judged,
    noted,
    ratio,
    student,
)


@given(st.text(max_size=5), st.integers(0, 200), st.sampled_from([(128, 2), (64, 1), (7, 3)]))
def test_each_period_has_its_whole_window_once(
    seed: str, period: int, shape: tuple[int, int]
) -> None:
    length, steps = shape
    windows = Windows(seed, length, steps)
    inside = [
        place for place in range(length) if windows.kind(period * length + place) == "control"
    ]
    assert len(inside) == steps
    assert inside == list(range(inside[0], inside[0] + steps))
    assert windows.settling(period * length + inside[-1] + 1)
    assert windows.share == steps / length


def test_windows_are_one_step_in_64_at_places_that_nobody_can_follow() -> None:
    here, there = Windows("verifier-1"), Windows("verifier-2")
    assert here.share == 1 / 64

    def starts(windows: Windows) -> list[int]:
        return [
            next(p for p in range(128) if windows.kind(128 * period + p) == "control")
            for period in range(200)
        ]

    assert len(set(starts(here))) > 80
    assert sum(a == b for a, b in zip(starts(here), starts(there), strict=True)) < 10


def test_windows_turn_round_for_a_cohort_that_waits_to_come_back() -> None:
    windows = Windows()
    kinds = [windows.kind(step, returning=True) for step in range(128 * 8)]
    assert kinds.count("probe") == kinds.count("control") == 8


def test_no_windows_where_a_replica_is_the_control() -> None:
    assert {Windows(steps=0).kind(step) for step in range(500)} == {"policy"}
    with pytest.raises(ValueError, match="period"):
        Windows(period=2, steps=2)


def written(truth: float, periods: int, seed: int = 0, ledger: Ledger | None = None) -> Ledger:
    dice, ledger = random.Random(seed), ledger or Ledger()
    first = ledger.period + 1
    for period in range(first, first + periods):
        machine = dice.uniform(0.5, 2.0)  # how fast it is just now, for both sides
        for drafting, speed, steps in (
            (True, truth * dice.gauss(1.0, 0.026), 60.0),
            (False, dice.gauss(1.0, 0.014), 2.0),
        ):
            tokens = speed * machine * steps
            ledger = noted(ledger, period, drafting=drafting, tokens=tokens, standard=steps)
        ledger = judged(ledger)
    return noted(ledger, ledger.period + 1, drafting=True, tokens=1.0, standard=1.0)


def test_pairs_find_the_ratio_although_the_machine_changes_pace() -> None:
    found = ratio(written(1.3, 40))
    assert found.pairs == MEMORY
    assert found.low < 1.3 < found.high
    assert found.high - found.low < 0.06


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    covered = sum(
        found.low <= 1.1 <= found.high
        for found in (ratio(written(1.1, 8, seed)) for seed in range(300))
    )
    assert 0.91 * 300 <= covered <= 0.985 * 300


def test_a_cohort_that_is_slower_falls_and_one_that_may_not_be_does_not() -> None:
    assert written(0.90, LEAST_PAIRS + 1).fallen
    assert not written(0.90, LEAST_PAIRS - 2).fallen
    assert not any(written(1.05, 60, seed).falls for seed in range(20))
    assert sum(written(1.0, 60, seed).falls for seed in range(20)) <= 2  # and loses nothing


def test_a_fallen_cohort_comes_back_when_probes_reach_1_and_each_relapse_takes_longer() -> None:
    fallen = written(0.9, 12)
    assert written(0.9, 40, 1, fallen).fallen
    back = written(1.2, 10, 2, fallen)
    assert not back.fallen
    assert back.falls == 1
    again = written(0.9, 40, 3, back)
    assert again.fallen
    assert again.falls == 2
    assert len(again.ratios) <= MEMORY
    assert written(1.2, 6, 4, again).fallen
    assert not written(1.2, 12, 4, again).fallen


def test_without_both_sides_there_is_no_pair() -> None:
    ledger = noted(Ledger(), 0, drafting=True, tokens=5.0, standard=4.0)
    assert noted(ledger, 1, drafting=True, tokens=5.0, standard=4.0).ratios == ()
    assert ratio(ledger).low == 0.0


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(4, 2.776), (7, 2.365), (15, 2.131), (63, 1.998)]
)
def test_students_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student(1.95996, freedom) == pytest.approx(quantile, rel=0.004)
