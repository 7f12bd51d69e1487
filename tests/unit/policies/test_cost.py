"""The cost of a step by its rows."""

from __future__ import annotations

import pytest

from policies.cost import LIMIT, Cost, observed, profiled, seconds

CURVE = profiled([(1, 0.010), (4, 0.016), (8, 0.016), (16, 0.040)])


def test_between_anchors_the_curve_is_straight_and_beyond_them_goes_on() -> None:
    assert seconds(CURVE, 1) == 0.010
    assert seconds(CURVE, 2) == pytest.approx(0.012)
    assert seconds(CURVE, 6) == pytest.approx(0.016)
    assert seconds(CURVE, 24) == pytest.approx(0.064)


def test_more_rows_never_cost_less() -> None:
    assert profiled([(4, 0.02), (1, 0.03)]) == Cost((1, 4), (0.03, 0.03))
    curve = CURVE
    for _ in range(100):
        curve = observed(curve, 16, 0.001)
    values = [seconds(curve, rows) for rows in range(1, 40)]
    assert values == sorted(values)


def test_one_sample_is_a_flat_curve_and_none_is_an_error() -> None:
    assert seconds(profiled([(3, 0.02)]), 50) == 0.02
    assert seconds(observed(profiled([(3, 0.02)]), 9, 0.04), 1) > 0.02
    with pytest.raises(ValueError, match="at least one"):
        profiled([])


def test_steps_pull_the_curve_to_what_they_take() -> None:
    curve = CURVE
    for _ in range(200):
        curve = observed(curve, 4, 0.032)
    assert seconds(curve, 4) == pytest.approx(0.032, rel=0.01)
    assert seconds(curve, 1) > 0.010  # a busier machine is busier for every number of rows
    assert seconds(curve, 1) < seconds(curve, 4)


def test_an_interrupted_step_counts_as_twice_too_long_at_most() -> None:
    assert observed(CURVE, 8, 100.0) == observed(CURVE, 8, LIMIT * 0.016)
