"""What steps and blocks cost: a profile, kept true by live medians."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import estimate_draft as draft
from policies.estimate_cost import (
    PATIENCE,
    Sample,
    StepCost,
    observed,
    profiled,
    step_s,
)

STAIRS = [(1, 0.010), (8, 0.012), (9, 0.020), (16, 0.021), (17, 0.030)]


def make_cost() -> StepCost:
    return profiled([Sample(rows, seconds) for rows, seconds in STAIRS])


def fed(cost: StepCost, rows: int, took_s: float, steps: int) -> StepCost:
    for _ in range(steps):
        cost = observed(cost, rows, took_s)
    return cost


def test_edges_of_the_staircase_stay_where_they_were_measured() -> None:
    cost = make_cost()
    for rows, seconds in STAIRS:
        assert step_s(cost, rows) == pytest.approx(seconds)
    busy = fed(cost, 8, 0.0132, 40)
    assert step_s(busy, 9) / step_s(busy, 8) == pytest.approx(20 / 12)


@given(
    st.lists(st.tuples(st.sampled_from([1, 4, 8, 9, 16, 17, 40]), st.floats(1e-5, 10)), max_size=60)
)
def test_more_rows_never_cost_less_whatever_is_measured(steps: list[tuple[int, float]]) -> None:
    cost = make_cost()
    for rows, took_s in steps:
        cost = observed(cost, rows, took_s)
    values = [step_s(cost, rows) for rows in range(1, 60)]
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(values))
    assert min(values) > 0.0


def test_an_interrupted_step_moves_nothing() -> None:
    cost = fed(make_cost(), 8, 0.012, 5)
    assert step_s(observed(cost, 8, 5.0), 8) == pytest.approx(0.012)
    assert observed(cost, 8, 0.0) == cost


def test_a_busier_machine_is_busier_for_rows_that_were_not_visited() -> None:
    cost = fed(make_cost(), 1, 0.011, 40)
    assert step_s(cost, 17) == pytest.approx(0.033)
    assert cost.alarms == 0


def test_an_anchor_that_was_profiled_wrongly_is_corrected_alone() -> None:
    cost = make_cost()
    for _ in range(30):
        cost = observed(cost, 1, 0.010)
        cost = observed(cost, 1, 0.010)
        cost = observed(cost, 9, 0.024)
    assert step_s(cost, 9) == pytest.approx(0.024, rel=0.01)
    assert step_s(cost, 1) == pytest.approx(0.010, rel=0.01)
    assert step_s(cost, 17) == pytest.approx(0.030, rel=0.01)


def test_a_lasting_shift_is_an_alarm_once_and_the_new_profile() -> None:
    cost = fed(make_cost(), 8, 0.024, PATIENCE)
    assert cost.alarms == 1
    assert cost.stairs[0] == pytest.approx(0.020)
    assert fed(cost, 8, 0.024, 100).alarms == 1


def test_sequences_and_context_are_priced_from_the_profile() -> None:
    def truth(rows: int, sequences: int, context: int) -> float:
        return 0.01 + 0.001 * rows + 0.0002 * sequences + 1e-7 * context

    cost = profiled(
        [
            Sample(rows, truth(rows, sequences, context), sequences, context)
            for rows in (8, 16)
            for sequences in (1, 8)
            for context in (100, 10_000)
        ]
    )
    assert step_s(cost, 12, 4, 5000) == pytest.approx(truth(12, 4, 5000))
    assert step_s(cost, 12, 4, 9000) > step_s(cost, 12, 4, 5000)
    kept = observed(cost, 8, truth(8, 8, 50_000), 8, 50_000)
    assert step_s(kept, 8, 1, 100) == pytest.approx(truth(8, 1, 100))


@pytest.mark.parametrize("samples", [[], [Sample(1, 0.0)]])
def test_a_profile_of_nothing_is_refused(samples: list[Sample]) -> None:
    with pytest.raises(ValueError, match="positive seconds"):
        profiled(samples)


def test_blocks_cost_more_in_more_sessions_and_depth_and_none_costs_nothing() -> None:
    cost = draft.profiled([(1, 1, 0.002), (1, 4, 0.008), (8, 1, 0.001), (8, 4, 0.010)], 0.0004)
    assert draft.block_s(cost, 1, 1) == pytest.approx(0.0024)
    assert draft.block_s(cost, 1, 1, remote=False) == pytest.approx(0.002)
    assert draft.block_s(cost, 8, 1, remote=False) == pytest.approx(0.002)  # never less
    assert draft.block_s(cost, 4, 4, remote=False) == pytest.approx(0.008 + 0.002 * 3 / 7)
    assert draft.block_s(cost, 0, 4) == draft.block_s(cost, 4, 0) == 0.0
    with pytest.raises(ValueError, match="at least one"):
        draft.profiled([])


def test_drafting_and_the_wire_follow_their_own_medians() -> None:
    cost = draft.profiled([(1, 1, 0.002), (1, 4, 0.008)])
    for trip_s in (0.001, 0.001, 9.0, 0.001, 0.001):
        cost = draft.observed(cost, 1, 4, 0.012, trip_s)
    assert cost.wire_s == 0.001
    assert draft.block_s(cost, 1, 1) == pytest.approx(0.003 + 0.001)
    assert draft.observed(cost, 1, 4, 0.012, None).wire_s == 0.001


def test_a_disturbed_measurement_makes_no_rows_dearer_than_more_of_them() -> None:
    cost = profiled([Sample(1, 0.010), Sample(16, 0.097), Sample(32, 0.073), Sample(64, 0.140)])
    assert step_s(cost, 16) == pytest.approx(0.073)
    assert step_s(cost, 32) == pytest.approx(0.073)


def test_beyond_the_profile_rows_are_never_free() -> None:
    cost = profiled([Sample(1, 0.010), Sample(16, 0.070), Sample(32, 0.070)])
    assert step_s(cost, 63) > 1.8 * step_s(cost, 32)
