"""When a request is asked for blocks, and when it is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import patience
from policies.patience import (
    AWAKE,
    LONG_MEMORY,
    LONGEST,
    MEMORY,
    NOTHING,
    PATIENCE,
    REST,
    TRIED,
    Record,
)

PRICE_S = 0.001
USELESS = Record(0.0, LONG_MEMORY)
USEFUL = Record(LONG_MEMORY * 2 * PRICE_S, LONG_MEMORY)
POOR = Record(LONG_MEMORY * 0.5 * PRICE_S, LONG_MEMORY)


def after(record: Record, gains_s: list[float], memory: float = MEMORY) -> Record:
    for gain_s in gains_s:
        record = patience.noted(record, gain_s, memory)
    return record


def vain_asks(everyone: Record, own: Record = NOTHING, most: int = 1000) -> int:
    """How many asks in vain there are, in a row, before it rests."""
    for vain in range(most):
        if not patience.asks(own, everyone, PRICE_S, vain):
            return vain
        own = patience.noted(own, 0.0, MEMORY)
    return most


def test_of_a_drafter_of_no_use_a_new_request_is_asked_once() -> None:
    assert vain_asks(USELESS) == 1


@pytest.mark.parametrize("everyone", [NOTHING, POOR])
def test_where_blocks_pay_for_some_or_nothing_is_known_a_few_are_asked(everyone: Record) -> None:
    assert vain_asks(everyone) == PATIENCE


def test_where_blocks_pay_on_average_a_request_has_to_prove_that_its_own_do_not() -> None:
    assert PATIENCE < vain_asks(USEFUL) < 20


def test_one_whose_own_blocks_pay_is_asked_where_those_of_others_do_not() -> None:
    own = after(NOTHING, [20 * PRICE_S] * 8)
    assert patience.asks(own, USELESS, PRICE_S, vain=PATIENCE)
    assert vain_asks(USELESS, own) < 60  # and not for ever


def test_a_block_pays_for_itself_and_for_those_in_vain_before_it_but_not_for_a_long_rest() -> None:
    assert patience.pays(PRICE_S, PRICE_S, vain=0)
    assert not patience.pays(0.99 * PRICE_S, PRICE_S, vain=0)
    assert not patience.pays(PRICE_S, PRICE_S, vain=1)
    assert patience.pays(2 * PRICE_S, PRICE_S, vain=1)
    assert patience.pays(PATIENCE * PRICE_S, PRICE_S, vain=1000)
    assert not patience.pays(0.0, 0.0, vain=0)  # nothing was verified


def test_a_rest_grows_to_its_longest() -> None:
    rest, lengths = AWAKE, []
    for _ in range(8 * TRIED):
        lengths.append(rest.every)
        rest = patience.tried(rest)
    assert lengths[: TRIED + 1] == [REST] * TRIED + [2 * REST]
    assert lengths == sorted(lengths)
    assert lengths[-1] == LONGEST


def test_after_a_change_of_text_a_few_asks_say_what_holds() -> None:
    doubted = patience.doubted(USELESS)
    assert patience.barren(doubted, PRICE_S)
    few = after(doubted, [2 * PRICE_S] * 2, LONG_MEMORY)
    assert not patience.barren(few, PRICE_S)
    assert patience.doubted(few) == few or patience.doubted(few).asks <= few.asks


@given(
    st.lists(st.floats(0.0, 0.01), max_size=40),
    st.lists(st.floats(0.0, 0.01), max_size=40),
    st.integers(0, 100),
    st.floats(1e-6, 0.01),
    st.floats(1.0, 10.0),
)
def test_dearer_asks_are_never_asked_where_cheaper_ones_are_not(
    own: list[float], all_: list[float], vain: int, price_s: float, times: float
) -> None:
    mine, everyone = after(NOTHING, own), after(NOTHING, all_, LONG_MEMORY)
    dear = patience.asks(mine, everyone, times * price_s, vain)
    assert not dear or patience.asks(mine, everyone, price_s, vain)
