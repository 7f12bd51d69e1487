"""Exploring has a price, and the price a bound."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.choice_explore import (
    BURST,
    LOSS_SHARE,
    PROBE_SHARE,
    SHADOW_EVERY,
    SHADOW_SHARE,
    VAIN_SHARE,
    Purse,
    affords,
    passed,
    probed,
    renewed,
    shadowed,
    steps_until,
    turn,
    worst_loss_s,
)

STEP_S = 0.01
prices = st.floats(0, 0.2)
seconds = st.floats(0.005, 0.1)


@settings(max_examples=50)
@given(st.lists(st.tuples(prices, prices, seconds, st.booleans()), min_size=1, max_size=300))
def test_exploring_never_costs_more_than_its_share_and_one_step(
    steps: list[tuple[float, float, float, bool]],
) -> None:
    """Whatever is drawn, however urgent, however dear: the regret of exploring is bounded."""
    purse, shadows, probes, spent, elapsed = Purse(), 0, 0, 0.0, 0.0
    for shadow_s, probe_s, took_s, changed in steps:
        after = shadowed(purse, urgent=True, due=False, price_s=shadow_s, allowed_s=STEP_S)
        if after is not None:
            purse, shadows, spent = after, shadows + 1, spent + shadow_s
        after = probed(purse, price_s=probe_s, allowed_s=STEP_S, known=True)
        if after is not None:
            purse, probes, spent = after, probes + 1, spent + probe_s
        assert spent <= LOSS_SHARE * elapsed + STEP_S + 1e-9
        purse, elapsed = passed(purse, took_s), elapsed + took_s
        purse = renewed(purse) if changed else purse
    changes = sum(changed for *_, changed in steps)
    assert shadows <= SHADOW_SHARE * len(steps) + BURST * (1 + changes)
    assert probes <= PROBE_SHARE * len(steps) + 1


@given(st.floats(0, 1.0), st.floats(0, 100.0), prices)
def test_after_so_many_steps_the_account_bears_it_and_not_before(
    spent_s: float, elapsed_s: float, price_s: float
) -> None:
    purse = Purse(spent_s=spent_s, elapsed_s=elapsed_s)
    steps = steps_until(purse, price_s, STEP_S, STEP_S)
    assert (steps == 0) == affords(purse, price_s, STEP_S)
    assert affords(passed(purse, (steps + 1e-6) * STEP_S), price_s, STEP_S)
    assert steps == 0 or not affords(passed(purse, (steps - 1.001) * STEP_S), price_s, STEP_S)


def test_a_calm_policy_saves_shadows_for_a_change() -> None:
    purse = Purse(shadows=0.0, elapsed_s=10.0)
    for step in range(600):
        found = shadowed(purse, urgent=False, due=turn("v", step), price_s=0.0, allowed_s=STEP_S)
        purse = passed(found or purse, STEP_S)
    burst = 0
    while (
        found := shadowed(purse, urgent=True, due=False, price_s=0.0, allowed_s=STEP_S)
    ) is not None:
        purse, burst = found, burst + 1
    assert burst >= 9


def test_what_would_not_be_chosen_at_its_best_is_looked_at_for_half_of_the_price() -> None:
    spent = {}
    for vain in (False, True):
        purse = Purse()
        for _ in range(20_000):
            found = shadowed(
                purse,
                urgent=False,
                due=True,
                price_s=0.3 * STEP_S,
                allowed_s=0.0,
                vain=lambda: vain,
            )
            purse = passed(found or purse, STEP_S)
        spent[vain] = purse.spent_s / purse.elapsed_s
    assert LOSS_SHARE * 0.98 < spent[False] <= LOSS_SHARE
    assert VAIN_SHARE * 0.95 < spent[True] <= VAIN_SHARE


def test_what_would_not_be_chosen_at_its_best_waits_however_urgent_it_is() -> None:
    purse = Purse(spent_s=VAIN_SHARE, elapsed_s=1.0)
    for seen in ({"urgent": True, "due": False}, {"urgent": False, "due": True}):
        price = {"price_s": 1e-4, "allowed_s": STEP_S}
        assert shadowed(purse, **seen, **price, vain=lambda: True) is None
        assert shadowed(purse, **seen, **price, vain=lambda: False) is not None


def test_a_shadows_turn_comes_once_in_each_stretch_and_keeps_no_rhythm() -> None:
    steps = [step for step in range(100 * SHADOW_EVERY) if turn("v", step)]
    assert [step // SHADOW_EVERY for step in steps] == list(range(100))
    assert len({step % SHADOW_EVERY for step in steps}) == SHADOW_EVERY
    assert steps != [step for step in range(100 * SHADOW_EVERY) if turn("w", step)]


def test_after_a_change_the_burst_is_there_whatever_doubts_have_used() -> None:
    purse = Purse(shadows=0.5, elapsed_s=10.0)
    assert shadowed(purse, urgent=True, due=True, price_s=0.0, allowed_s=STEP_S) is None
    assert renewed(purse).shadows == BURST


def test_probes_in_vain_become_rarer_until_texts_change() -> None:
    def wait(purse: Purse) -> tuple[Purse, int]:
        for step in range(1, 100_000):
            purse = passed(purse, 1.0)
            found = probed(purse, price_s=0.0, allowed_s=STEP_S, known=True)
            if found is not None:
                return found, step
        raise AssertionError

    purse, gaps = Purse(), []
    for _ in range(4):
        purse, gap = wait(purse)
        gaps.append(gap)
    assert all(b >= 1.9 * a for a, b in itertools.pairwise(gaps))
    assert gaps[0] >= 99
    purse, gap = wait(renewed(purse))
    assert gap <= 101


def test_a_probe_is_priced_as_if_nothing_of_it_came_true() -> None:
    assert worst_loss_s(0.02, 1, 100.0) == 0.01
    assert worst_loss_s(0.02, 4, 100.0) == 0.0
