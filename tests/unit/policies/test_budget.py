"""Drafted rows go where the batch's tokens per second are highest, or nowhere."""

from __future__ import annotations

from itertools import accumulate, product
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.budget import MARGIN, allot, pays

chances = st.lists(
    st.lists(st.floats(0, 1), max_size=3).map(lambda c: sorted(c, reverse=True)), max_size=3
)
costs = st.lists(st.floats(0.001, 1.0), min_size=20, max_size=20).map(
    lambda steps: [sum(steps[: i + 1]) for i in range(20)]
)


def rate(
    survivals: list[list[float]], depths: tuple[int, ...], writers: int, cost: list[float]
) -> float:
    rows = writers + sum(depths)
    gain = sum(sum(s[:d]) for s, d in zip(survivals, depths, strict=True))
    return (writers + gain) / cost[rows]


@given(chances, costs, st.integers(0, 4))
def test_no_other_choice_has_a_higher_rate(
    survivals: list[list[float]], cost: list[float], more: int
) -> None:
    writers = max(1, len(survivals) + more)
    depths = tuple(allot(survivals, writers, lambda rows: cost[rows], margin=0.0))
    best = max(
        rate(survivals, other, writers, cost)
        for other in product(*(range(len(s) + 1) for s in survivals))
    )
    assert rate(survivals, depths, writers, cost) >= best * (1 - 1e-12)


@given(chances, costs)
def test_standard_decode_wins_unless_it_is_beaten_by_the_margin(
    survivals: list[list[float]], cost: list[float]
) -> None:
    writers = max(1, len(survivals))
    depths = tuple(allot(survivals, writers, lambda rows: cost[rows]))
    plain = rate(survivals, (0,) * len(survivals), writers, cost)
    assert not any(depths) or rate(survivals, depths, writers, cost) > (1 + MARGIN) * plain


def test_free_rows_are_taken_and_dear_ones_are_not() -> None:
    likely, unlikely = [0.8, 0.6, 0.5], [0.3, 0.1]
    assert allot([likely, unlikely], 2, lambda rows: 1.0) == [3, 2]
    assert allot([likely, unlikely], 2, lambda rows: float(rows)) == [0, 0]
    assert allot([likely, unlikely], 2, lambda rows: 1.0 + 0.15 * rows) == [3, 0]


def test_a_flat_step_of_the_staircase_is_used_to_its_end() -> None:
    def stairs(rows: int) -> float:
        return 1.0 if rows == 1 else 1.4 + 0.7 * ((rows - 2) // 4)

    assert allot([[0.3, 0.25, 0.2, 0.15, 0.1]], 1, stairs) == [4]


@given(chances, st.integers(0, 4), st.integers(1, 16), st.floats(0.0, 0.5), st.floats(0.0, 1.0))
def test_prompts_of_which_all_rows_cost_alike_change_nothing(
    survivals: list[list[float]], more: int, prompts: int, each: float, spent_s: float
) -> None:
    """One more token in a long step is not cheap: all that waits for the step waits for it."""
    writers = max(1, len(survivals) + more)

    def step_s(rows: int) -> float:
        return 1.0 + round(each, 2) * rows

    alone = allot(survivals, writers, step_s, spent_s=spent_s)
    beside = allot(survivals, writers, step_s, other_rows=prompts, spent_s=spent_s)
    assert sum(beside) == pytest.approx(sum(alone), abs=1)


def test_beside_prompts_drafted_rows_cost_what_they_cost_there() -> None:
    block = [[0.5, 0.2]]

    def stairs(rows: int) -> float:
        return 1.0 if rows <= 4 else 4.0

    assert allot(block, 1, stairs) == [2]
    assert allot(block, 1, stairs, other_rows=3) == [0]
    assert allot(block, 1, stairs, other_rows=8) == [2]


def test_what_is_spent_lengthens_every_choice_alike() -> None:
    assert allot([[0.5]], 1, float) == [0]
    assert allot([[0.5]], 1, float, spent_s=3.0) == [1]


def test_survival_that_rises_is_taken_as_flat() -> None:
    assert allot([[0.1, 0.9]], 1, lambda rows: 1.0 + 0.2 * rows) == [0]


def test_nothing_offered_is_nothing_taken() -> None:
    assert allot([], 3, lambda rows: 1.0) == []
    assert allot([[]], 3, lambda rows: 1.0) == [0]


@given(st.floats(0, 1), st.integers(0, 3), st.integers(1, 4), costs, st.sampled_from([0.0, 0.03]))
def test_like_blocks_pay_where_any_row_of_them_would_be_taken(
    rate: float, depth: int, writers: int, cost: list[float], margin: float
) -> None:
    block = list(accumulate([rate] * depth, mul))
    taken = allot([block] * writers, writers, lambda rows: cost[rows], margin=margin)
    assert pays(rate, depth, writers, lambda rows: cost[rows], margin) == any(taken)
