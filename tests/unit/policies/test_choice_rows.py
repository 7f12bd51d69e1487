"""Which drafted rows a step verifies once blocks are there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.choice_rows import Offer, Row, rows
from policies.estimate import Rule

SURVIVE = {"a": (0.9, 0.8, 0.7, 0.6), "b": (0.3, 0.1)}


def cheap(count: float) -> float:
    return 1.0 + 0.01 * count


@given(
    st.lists(
        st.builds(
            Offer,
            st.sampled_from(["a", "b"]),
            st.integers(0, 6),
            st.none() | st.integers(0, 6),
            st.none() | st.integers(0, 6),
        ),
        max_size=6,
    ),
    st.integers(0, 6),
    st.floats(0, 1),
)
def test_no_row_exceeds_what_came_the_plan_the_wish_or_the_end(
    offers: list[Offer], planned: int, each: float
) -> None:
    plan = {"a": planned, "b": 1}
    found = rows(
        offers, plan, SURVIVE, len(offers), lambda n: 1 + each * n, rule="coupled", spent_s=0.1
    )
    assert len(found) == len(offers)
    for offer, row in zip(offers, found, strict=True):
        bounds = [offer.size, plan[offer.cohort], len(SURVIVE[offer.cohort])]
        bounds += [bound for bound in (offer.wish, offer.left) if bound is not None]
        assert 0 <= row.depth <= min(bounds)


def test_every_row_says_what_bounds_it() -> None:
    offers = [Offer("a", 4), Offer("a", 4, wish=2), Offer("a", 4, left=1), Offer("a", 4, wish=0)]
    found = rows(offers, {"a": 3}, SURVIVE, 4, cheap, rule="coupled")
    assert found == [Row(3, "gain"), Row(2, "wish"), Row(1, "end"), Row(0, "wish")]
    assert rows([Offer("a", 4)], {"a": 0}, SURVIVE, 1, cheap, rule="coupled") == [Row(0, "no-gain")]


def test_under_load_rows_go_to_those_who_survive() -> None:
    offers = [Offer("a", 4), Offer("b", 2)]
    found = rows(offers, {"a": 4, "b": 2}, SURVIVE, 8, lambda n: 1 + 0.2 * n, rule="coupled")
    assert found[1] == Row(0, "budget")
    assert found[0].depth > 0


def test_what_is_known_of_the_block_counts_where_it_may() -> None:
    offers = [Offer("a", 4, survive=(0.9, 0.0, 0.0, 0.0))]
    assert rows(offers, {"a": 4}, SURVIVE, 1, lambda n: 1 + 0.1 * n, rule="greedy")[0].depth == 1


@pytest.mark.parametrize("rule", ["rejection", "block"])
@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.floats(0, 0.5))
def test_where_laws_are_weighed_the_length_does_not_look_at_the_block(
    rule: Rule, own: list[float], each: float
) -> None:
    """Non-anticipation (mechanisms.md §8.1): the same depth whatever the block itself says."""

    def depth(survive: list[float] | None) -> int:
        offers = [Offer("a", 4, survive=survive), Offer("a", 4)]
        return rows(offers, {"a": 4}, SURVIVE, 3, lambda n: 1 + each * n, rule=rule)[0].depth

    assert depth(own) == depth(None)


def test_what_was_spent_on_drafting_makes_rows_relatively_cheaper() -> None:
    offers = [Offer("a", 1)]

    def depth(spent_s: float) -> int:
        step_s = {1.0: 1.0, 2.0: 2.0}
        return rows(
            offers, {"a": 1}, SURVIVE, 1, step_s.__getitem__, rule="coupled", spent_s=spent_s
        )[0].depth

    assert depth(0.0) == 0
    assert depth(2.0) == 1
