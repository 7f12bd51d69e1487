"""A block's price from what its drafter timed of itself, and from a guess before that."""

from __future__ import annotations

import pytest

from policies import estimate_draft
from policies.adaptive import Adaptive
from policies.choice import Arm
from policies.estimate_cost import Sample, profiled
from policies.estimate_draft import block_s, guessed, observed, timed

GRID = ((1, 1, 0.010), (1, 4, 0.040), (8, 1, 0.020), (8, 4, 0.080))
BARE = Arm("eagle3", False, 4)
TIMED = Arm("eagle3", False, 4, GRID)


def policy() -> Adaptive:
    return Adaptive(profiled([Sample(1, 0.1), Sample(64, 0.2)]), {})


@pytest.mark.parametrize(("sessions", "depth", "seconds"), GRID)
def test_a_block_costs_what_its_drafter_timed(sessions: int, depth: int, seconds: float) -> None:
    made = policy()
    made.meet(TIMED)
    price_s = block_s(made.state.draft[TIMED], sessions, depth, remote=False)
    assert price_s == pytest.approx(seconds)


def test_a_grid_that_comes_later_takes_the_place_of_the_guess() -> None:
    made = policy()
    made.meet(BARE)
    assert made.state.draft[BARE].guess
    made.meet(TIMED)
    assert not made.state.draft[BARE].guess
    assert block_s(made.state.draft[BARE], 8, 4, remote=False) == pytest.approx(0.080)


def test_ratios_to_a_guess_go_with_it_and_the_measured_wire_stays() -> None:
    before = observed(guessed(4), 1, 4, draft_s=5.0, trip_s=0.003)
    after = timed(GRID, before)
    assert (after.scale, after.newest) == (1.0, ())
    assert (after.wire_s, after.trips) == (0.003, (0.003,))


def test_live_corrections_of_a_timed_grid_outlive_another_meeting() -> None:
    made = policy()
    made.meet(TIMED)
    slower = observed(made.state.draft[TIMED], 1, 4, draft_s=0.080)
    made.state = type(made.state)(made.state.step_cost, {TIMED: slower})
    made.meet(TIMED)
    made.meet(BARE)
    assert made.state.draft[TIMED] is slower


def test_more_sessions_than_a_slow_drafter_could_time_are_not_taken_to_be_free() -> None:
    one = timed([(1, 1, 0.010), (1, 4, 0.040)])
    assert block_s(one, 1, 4, remote=False) == pytest.approx(0.040)
    assert block_s(one, 8, 4, remote=False) == pytest.approx(0.060)
    assert block_s(one, 64, 4, remote=False) == pytest.approx(0.160)


def test_without_timings_there_is_nothing_to_price_by() -> None:
    with pytest.raises(ValueError, match="sample"):
        estimate_draft.timed([])
