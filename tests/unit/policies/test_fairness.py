"""Rows and places are shared: by priority, between tenants, between the old and the short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.fairness import Prompt, max_min, share_rows

prompts = st.lists(
    st.builds(Prompt, st.sampled_from("abc"), st.integers(-1, 1), st.integers(1, 60)), max_size=8
)


def make_prompts(*rows: int, tenant: str = "", priority: int = 0) -> list[Prompt]:
    return [Prompt(tenant, priority, n) for n in rows]


@given(prompts, st.integers(0, 100))
def test_rows_are_never_wasted_and_never_more_than_wanted(wants: list[Prompt], budget: int) -> None:
    given_rows = share_rows(wants, budget)
    assert all(0 <= n <= want.rows for n, want in zip(given_rows, wants, strict=True))
    assert sum(given_rows) == min(budget, sum(want.rows for want in wants))


@given(prompts, st.integers(0, 100))
def test_a_lower_priority_value_is_served_before_any_other(
    wants: list[Prompt], budget: int
) -> None:
    given_rows = share_rows(wants, budget)
    for n, want in zip(given_rows, wants, strict=True):
        later = sum(m for m, o in zip(given_rows, wants, strict=True) if o.priority > want.priority)
        assert not later or n == want.rows


def test_a_short_prompt_overtakes_the_rest_of_a_long_one() -> None:
    assert share_rows(make_prompts(4000, 20), 64) == [44, 20]
    assert share_rows(make_prompts(4000, 200, 20), 64) == [32, 12, 20]


@given(st.lists(st.integers(1, 500), min_size=1, max_size=8), st.integers(1, 64))
def test_the_oldest_prompt_is_never_held_up_by_more_than_half(rows: list[int], budget: int) -> None:
    assert share_rows(make_prompts(*rows), budget)[0] >= min(rows[0], -(-budget // 2))


def test_prompts_of_one_length_are_computed_one_after_the_other() -> None:
    assert share_rows(make_prompts(100, 100, 100), 64) == [64, 0, 0]


def test_a_crowd_of_one_tenant_takes_no_more_than_its_share() -> None:
    crowd = make_prompts(*[500] * 9, tenant="crowd")
    assert share_rows([*crowd, Prompt("one", 0, 40)], 64)[-1] == 32
    assert share_rows([*crowd, Prompt("one", 0, 10)], 64)[-1] == 10


@pytest.mark.parametrize(
    ("wants", "budget", "expected"),
    [([10, 10], 10, [5, 5]), ([2, 10, 10], 12, [2, 5, 5]), ([1, 1, 9], 2, [1, 1, 0]), ([], 5, [])],
)
def test_max_min_gives_the_small_what_they_want_and_the_large_alike(
    wants: list[int], budget: int, expected: list[int]
) -> None:
    assert max_min(wants, budget) == expected
