"""Which of two drafters makes the next block."""

from __future__ import annotations

import pytest

from policies import combine
from policies.combine import Trust


def test_a_promise_is_the_expected_accepted_length() -> None:
    assert combine.promise(()) == 0.0
    assert combine.promise((1.0, 0.5, 0.5)) == pytest.approx(1.0 + 0.5 + 0.25)


def test_the_promise_is_taken_where_it_is_worth_at_least_the_other_block() -> None:
    survival = (0.6, 0.36)
    assert combine.takes_promise(0.96, Trust(), survival)
    assert not combine.takes_promise(0.95, Trust(), survival)


def test_nothing_promised_is_never_taken() -> None:
    assert not combine.takes_promise(0.0, Trust(), ())


def test_who_keeps_half_of_what_is_promised_is_believed_by_half() -> None:
    trust = Trust()
    for _ in range(2000):
        trust = combine.learned(trust, 4.0, 2)
    assert combine.discount(trust) == pytest.approx(0.5, abs=0.01)
    assert not combine.takes_promise(4.0, trust, (0.9, 0.8, 0.7))
    assert combine.takes_promise(5.0, trust, (0.9, 0.8, 0.7))


def test_old_promises_are_forgotten() -> None:
    trust = Trust()
    for kept in (0, 4):
        for _ in range(4000):
            trust = combine.learned(trust, 4.0, kept)
    assert combine.discount(trust) == pytest.approx(1.0, abs=0.01)
