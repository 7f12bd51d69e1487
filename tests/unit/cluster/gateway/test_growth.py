"""Totals of engines become sums that never fall, in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster.gateway.growth import MOST_COUNTS, MOST_ENGINES, Growth


def test_a_total_counts_by_what_it_has_grown_and_an_answer_that_was_overtaken_by_nothing() -> None:
    growth = Growth[str]()
    assert growth.since("e", {"a": 3.0, "b": 0.0}) == {"a": 3.0}
    assert growth.since("e", {"a": 5.0}) == {"a": 2.0}
    assert growth.since("e", {"a": 3.0, "b": 1.0}) == {"b": 1.0}
    assert growth.since("e", {"a": 5.0, "b": 1.0}) == {}
    assert growth.since("its successor", {"a": 1.0}) == {"a": 1.0}


@given(st.lists(st.integers(0, 9), min_size=1), st.randoms(use_true_random=False))
def test_whatever_order_answers_come_in_the_sum_is_the_newest_total(steps, dice) -> None:
    totals = [float(sum(steps[: i + 1])) for i in range(len(steps))]
    dice.shuffle(totals)
    growth = Growth[str]()
    grown = [sum(growth.since("e", {"a": total}).values()) for total in totals]
    assert min(grown) >= 0.0
    assert sum(grown) == sum(steps)


def test_engines_that_come_and_go_leave_no_more_than_so_many_names() -> None:
    growth = Growth[int]()
    for engine in range(2 * MOST_ENGINES):
        growth.since(engine, {0: 1.0})
    assert len(growth) == MOST_ENGINES
    growth.since("busy", dict.fromkeys(range(2 * MOST_COUNTS), 1.0))
    again = growth.since("busy", dict.fromkeys(range(MOST_COUNTS, 2 * MOST_COUNTS), 1.0))
    assert again == {}
