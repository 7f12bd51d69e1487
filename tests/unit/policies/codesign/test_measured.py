"""What measured costs say about D."""

from __future__ import annotations

import pytest

from policies import estimate_draft
from policies.choice import Arm
from policies.codesign.gain import expected_tokens
from policies.codesign.measured import depths, evens, stairs
from policies.estimate_cost import Sample, profiled

COST = profiled([Sample(1, 1.0), Sample(2, 1.0), Sample(4, 2.0), Sample(64, 2.0)])
ARM = Arm("suffix", False, 3)
FREE = estimate_draft.timed([(1, 1, 1e-12), (64, 3, 1e-12)])


def test_a_stair_is_where_rows_cost_more_than_they_do_on_average() -> None:
    assert stairs([(1, 1.0), (2, 1.0), (3, 2.0), (4, 2.0)]) == (3,)
    assert stairs([(1, 1.0), (2, 2.0), (3, 3.0)]) == ()
    assert stairs([(1, 1.0), (2, 1.0), (3, 1.0)]) == ()
    assert stairs([(1, 1.0), (2, 2.0)]) == ()


def test_rows_that_cost_nothing_pay_whatever_is_accepted() -> None:
    first = next(iter(evens(COST, {ARM: FREE}, [1], 0)))
    assert (first.depth, first.rows, first.needs) == (1, 2, pytest.approx(1.0))
    assert first.acceptance == pytest.approx(0.0, abs=1e-6)


def test_the_acceptance_that_pays_brings_the_tokens_that_pay() -> None:
    deep = list(evens(COST, {ARM: FREE}, [1], 0))[-1]
    assert (deep.depth, deep.rows, deep.needs) == (3, 4, pytest.approx(2.0))
    assert deep.acceptance is not None
    assert expected_tokens(deep.acceptance, 3) == pytest.approx(2.0)


def test_where_nothing_that_is_accepted_pays_there_is_no_acceptance() -> None:
    dear = estimate_draft.timed([(1, 1, 5.0), (64, 3, 5.0)])
    assert all(even.acceptance is None for even in evens(COST, {ARM: dear}, [1], 0))


def test_what_was_not_measured_is_marked() -> None:
    marks = {(e.sequences, e.depth): e.beyond for e in evens(COST, {ARM: FREE}, [16, 17, 65], 0)}
    assert marks[16, 3] is False
    assert marks[17, 3] is True
    assert marks[65, 1] is True


def test_depths_end_at_the_longest_block() -> None:
    assert depths(1) == (1,)
    assert depths(7) == (1, 2, 3, 4, 5, 6, 7)
    assert depths(10) == (1, 2, 3, 4, 5, 6, 8, 10)
