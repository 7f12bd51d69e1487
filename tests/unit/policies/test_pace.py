"""Prompts beside running streams take what keeps the streams running."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.pace import LEAST_ROWS, STALL_S, Pace, observed, prompt_rows


def learnt(decode_s: float, row_s: float) -> Pace:
    """From steps that cost exactly decode_s + rows * row_s."""
    pace = Pace()
    for rows in (0, 512, 0, 100, 0, 16):
        pace = observed(pace, decode_s + rows * row_s, rows)
    return pace


@given(st.floats(0.001, 0.5), st.floats(1e-6, 0.01))
def test_what_steps_cost_is_learnt_from_steps(decode_s: float, row_s: float) -> None:
    pace = learnt(decode_s, row_s)
    assert math.isclose(pace.decode_s, decode_s, rel_tol=1e-6)
    assert math.isclose(pace.row_s, row_s, rel_tol=1e-6, abs_tol=1e-12)


@given(st.floats(0.0, 0.5), st.floats(0.0, 0.01), st.integers(1, 4096))
def test_a_step_beside_streams_stays_within_the_limit_or_twice_decoding(
    decode_s: float, row_s: float, most: int
) -> None:
    rows = prompt_rows(Pace(decode_s, row_s), most)
    assert min(most, LEAST_ROWS) <= rows <= most
    if rows > LEAST_ROWS:
        assert decode_s + rows * row_s <= max(STALL_S, 2 * decode_s) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("decode_s", "row_s", "expected"),
    [
        (0.015, 0.0017, 50),  # a small model on two cores
        (0.010, 0.00001, 512),  # a GPU
        (0.200, 0.0050, 40),  # a slow model: a step may double, no more
        (0.090, 0.0050, LEAST_ROWS),
        (0.010, 0.1000, LEAST_ROWS),
        (0.0, 0.0, 512),  # nothing is known yet
    ],
)
def test_rows_follow_from_the_cost_of_a_row(decode_s: float, row_s: float, expected: int) -> None:
    assert prompt_rows(Pace(decode_s, row_s), 512) == expected


def test_without_a_limit_prompts_take_all_rows() -> None:
    assert prompt_rows(Pace(0.1, 1.0), 512, math.inf) == 512
