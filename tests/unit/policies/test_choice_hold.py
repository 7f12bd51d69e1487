"""Choices are held unless another is clearly better, and a policy at its threshold stays put."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.choice import STANDARD, Pick
from policies.choice_hold import DWELL, HYSTERESIS, TURNS, Held, held
from tests.unit.policies.choices import LEARNED, SUFFIX, Prospect, line, make_batch, make_costs

COSTS = make_costs(line(0.010, 0.0001), 0.001)


def prospect(suffix: float, learned: float, hope: float = 0.0, clients: int = 1) -> Prospect:
    def batch(more: float):
        rates = {SUFFIX: min(suffix + more, 1.0), LEARNED: min(learned + more, 1.0)}
        return make_batch(rates, clients, COSTS)

    return Prospect(batch(0.0), batch(hope))


@settings(max_examples=30)
@given(st.lists(st.floats(-1, 1), min_size=40, max_size=80), st.floats(0.45, 0.8))
def test_within_hysteresis_nothing_ever_changes(wobble: list[float], rate: float) -> None:
    """Two mechanisms that are alike but for noise: the rates of the choices differ by under 2%."""
    state = Held({"default": Pick(SUFFIX, 4)}, 0)
    for step, noise in enumerate(wobble):
        view = prospect(rate, rate + 0.03 + 0.002 * noise)
        held_rate = view.batch.rate(state.picks)
        best = max(view.batch.rate({"default": Pick(a, 4)}) for a in (SUFFIX, LEARNED))
        if best > (1 + HYSTERESIS) * held_rate:
            continue
        state, reasons = held(state, view, step)
        assert state.picks["default"] == Pick(SUFFIX, 4)
        assert reasons["default"] in ("gain", "held")


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0, 0.95), st.floats(0, 0.95)), min_size=60, max_size=120))
def test_whatever_is_estimated_there_is_one_change_and_one_drop_at_most_in_any_dwell(
    rates: list[tuple[float, float]],
) -> None:
    """Pitfall S47: no flapping, however the estimates jump."""
    state, changes = Held({"default": STANDARD}), []
    for step, (suffix, learned) in enumerate(rates):
        before = state.picks["default"]
        state, _ = held(state, prospect(suffix, learned), step)
        if state.picks["default"] != before:
            changes.append((step, state.picks["default"].depth))
    for step, _ in changes:
        inside = [depth for at, depth in changes if step <= at < step + DWELL]
        assert sum(depth > 0 for depth in inside) <= 1
        assert len(inside) <= 2


def test_a_better_choice_is_taken_after_three_steps_and_not_before_it_has_dwelt() -> None:
    state = Held({"default": Pick(SUFFIX, 4)}, 0)
    view = prospect(0.3, 0.9)
    for step in range(1, DWELL + TURNS):
        state, reasons = held(state, view, step)
        assert (state.picks["default"].arm == LEARNED) == (step == DWELL + TURNS - 1)
        assert reasons["default"] == ("gain" if step == DWELL + TURNS - 1 else "held")


def test_after_a_change_of_text_nothing_is_waited_for() -> None:
    state = Held({"default": Pick(SUFFIX, 4)}, 0)
    state, _ = held(state, prospect(0.3, 0.9), 1, fresh=True)
    assert state.picks["default"].arm == LEARNED


def test_drafting_that_loses_even_with_luck_ends_at_once_and_else_after_three_steps() -> None:
    dear = make_costs(line(0.0, 0.01))
    now = Held({"default": Pick(SUFFIX, 4)}, 0)
    sure = make_batch({SUFFIX: 0.1}, 4, dear)
    state, reasons = held(now, Prospect(sure, sure), 1)
    assert state.picks["default"] == STANDARD
    assert reasons["default"] == "no-gain"
    state, lucky = now, Prospect(sure, make_batch({SUFFIX: 1.0}, 4, dear))
    for step in range(1, TURNS + 1):
        state, _ = held(state, lucky, step)
        assert (state.picks["default"] == STANDARD) == (step == TURNS)


def test_a_drafter_that_is_gone_is_left_at_once_with_its_reason() -> None:
    batch = make_batch({SUFFIX: 0.1})
    state, reasons = held(Held({"default": Pick(LEARNED, 4)}, 0), Prospect(batch, batch), 1)
    assert state.picks["default"] == STANDARD
    assert state.since == 1
    assert reasons["default"] == "no-drafter"


def test_cohorts_that_are_away_keep_what_they_were_doing() -> None:
    batch = make_batch({SUFFIX: 0.9})
    state, _ = held(Held({"other": Pick(LEARNED, 3)}), Prospect(batch, batch), 5)
    assert state.picks["other"] == Pick(LEARNED, 3)
