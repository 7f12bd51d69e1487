"""The policy actor's load is bounded, however many verifiers there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.exchange_rate import IDLE, MOST_PER_S, forget_s, pause_s


@given(st.integers(0, 4096))
def test_verifiers_together_never_ask_more_often_than_the_actor_bears(verifiers: int) -> None:
    assert verifiers / pause_s(verifiers) <= MOST_PER_S
    assert pause_s(verifiers + 1) >= pause_s(verifiers) >= 1.0


@given(st.integers(0, 4096))
def test_nobody_is_forgotten_between_two_exchanges(verifiers: int) -> None:
    assert forget_s(verifiers) >= 2.0 * IDLE * pause_s(verifiers)
