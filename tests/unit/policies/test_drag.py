"""What drafting elsewhere slows the target down."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from policies.drag import DOUBT, ENOUGH, LIMIT, Drag, observed, share


def after(count: int, beside: float, alone: float, noise: float = 0.0, seed: int = 0) -> Drag:
    dice, drag = random.Random(seed), Drag()
    for i in range(2 * count):
        mean = beside if i % 2 else alone
        drag = observed(drag, mean * (1.0 + dice.gauss(0.0, noise)), beside=bool(i % 2))
    return drag


def test_what_is_added_is_found_whatever_the_expectation_was() -> None:
    for expected in (0.7, 1.0, 1.4):
        found = share(after(200, 1.10 * expected, expected))
        assert abs(found - (0.10 - DOUBT)) < 1e-6


def test_where_nothing_is_added_noise_adds_little() -> None:
    found = [share(after(300, 1.0, 1.0, noise=0.05, seed=seed)) for seed in range(40)]
    assert sum(found) / len(found) < 0.005


def test_nothing_is_said_before_both_kinds_were_seen() -> None:
    drag = Drag()
    for _ in range(10 * ENOUGH):
        drag = observed(drag, 1.5, beside=True)
    assert share(drag) == 0.0


@given(st.lists(st.tuples(st.floats(0.0, 1e6), st.booleans()), max_size=200))
def test_it_is_bounded_whatever_is_measured(steps: list[tuple[float, bool]]) -> None:
    drag = Drag()
    for ratio, beside in steps:
        drag = observed(drag, ratio, beside=beside)
    assert 0.0 <= share(drag) <= LIMIT * LIMIT
