"""A block's chance by what its drafter says of it, as far as that has come true."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.confidence import TRUST, Calibration, Own, scored, survival

sure = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8)
blocks = st.lists(st.tuples(sure, st.integers(0, 8)), max_size=40)


def after(
    count: int, confidence: tuple[float, ...], right: int, own: Own | None = None
) -> tuple[Calibration, Own]:
    """So many blocks of which the first `right` tokens came true."""
    state, mine = Calibration(), own or Own()
    for _ in range(count):
        state, mine = scored(state, mine, confidence, right)
    return state, mine


def learnt(history: list[tuple[list[float], int]]) -> tuple[Calibration, Own]:
    state, own = Calibration(), Own()
    for confidence, right in history:
        state, own = scored(state, own, confidence, min(right, len(confidence)))
    return state, own


@given(blocks, sure)
def test_chances_never_rise_within_a_block_and_are_never_certain(
    history: list[tuple[list[float], int]], confidence: list[float]
) -> None:
    chances = survival(*learnt(history), confidence)
    assert len(chances) == len(confidence)
    assert all(0.0 < b <= a < 1.0 for a, b in zip((0.99, *chances), chances, strict=False))


@given(blocks, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_what_came_true_raises_a_chance_and_what_did_not_lowers_it(
    history: list[tuple[list[float], int]], told: float, other: float
) -> None:
    """Monotone in acceptance: after a token that was right the like is likelier than after one that
    was wrong, in the same request and in any other."""
    state, own = learnt(history)
    right, wrong = (scored(state, own, [told], count) for count in (1, 0))
    for mine in (True, False):
        better, worse = (
            survival(known, asked if mine else Own(), [told])[0] for known, asked in (right, wrong)
        )
        assert better >= worse
    assert survival(*right, [other])[0] >= survival(*wrong, [other])[0]


def test_nothing_known_is_the_drafters_word_with_a_grain_of_salt() -> None:
    first, second = survival(Calibration(), Own(), (0.9, 0.5))
    assert first == pytest.approx(TRUST * 0.9)
    assert second == pytest.approx(TRUST * 0.9 * TRUST * 0.5)


def test_where_first_tokens_never_come_true_those_behind_them_are_not_believed_either() -> None:
    """They are never decided: a boast must not outlive the blocks that gave it away."""
    state, own = after(12, (1.0,) * 8, 0)
    assert math.fsum(survival(state, own, (1.0,) * 8)) < 0.12
    assert math.fsum(survival(state, Own(), (1.0,) * 8)) < 0.25


def test_a_drafter_that_boasts_is_not_believed_and_a_modest_one_is() -> None:
    boasts, _ = after(200, (1.0,), 0)
    modest, _ = after(200, (0.3,), 1)
    assert survival(boasts, Own(), (1.0,))[0] < 0.1
    assert survival(modest, Own(), (0.3,))[0] > 0.9


def test_tokens_as_sure_in_a_text_that_is_not_copied_count_less() -> None:
    """Calibrated on everybody's blocks, of which half come true; this request's never do."""
    state = Calibration()
    for _ in range(200):
        state, _ = scored(state, Own(), (0.9,), 1)
        state, _ = scored(state, Own(), (0.9,), 0)
    mine = Own()
    for _ in range(20):
        _, mine = scored(state, mine, (0.9,), 0)
    assert survival(state, Own(), (0.9,))[0] == pytest.approx(0.5, abs=0.02)
    assert survival(state, mine, (0.9,))[0] < 0.2


def test_what_stands_behind_a_rejected_token_was_never_decided() -> None:
    alone, _ = after(50, (0.9,), 0)
    assert after(50, (0.9, 0.2), 0)[0] == alone


def test_what_is_next_to_certain_stays_so_in_a_text_that_is_copied_less() -> None:
    """A request's say is about odds: half of its doubtful tokens come true less often, and hardly
    any of those that nearly always do."""
    state = Calibration()
    for _ in range(400):
        state, _ = scored(state, Own(), (1.0,), 1)
        state, _ = scored(state, Own(), (0.5,), 1)
        state, _ = scored(state, Own(), (0.5,), 0)
    mine = Own()
    for _ in range(6):
        _, mine = scored(state, mine, (0.5,), 0)
    doubtful, certain = (survival(state, mine, (told,))[0] for told in (0.5, 1.0))
    assert doubtful < 0.3
    assert certain > 0.9
