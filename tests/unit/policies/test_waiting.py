import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import acceptance, waiting
from policies.acceptance import Acceptance
from policies.waiting import Arrivals

SURVIVE = (0.7, 0.49, 0.343, 0.2401)  # a = .7 at every position, D = 4
SECONDS = st.floats(0.0, 10.0, allow_nan=False)
SAMPLES = st.lists(st.tuples(SECONDS, st.booleans()), max_size=40)


def make_arrivals(samples: list[tuple[float, bool]]) -> Arrivals:
    return Arrivals(tuple(samples))


def wait(law: waiting.ArrivalLaw | None, age_s: float = 0.0, step_s: float = 0.02) -> float:
    return waiting.wait_s(waiting.worth_s(1.0, step_s, SURVIVE), law, age_s=age_s)


def test_the_worth_of_waiting_is_the_designs_formula() -> None:
    first, later = 0.7, 0.49 + 0.343 + 0.2401
    expected = 0.5 * 0.02 * (2 * first + later) / (1 + first + later)
    assert waiting.worth_s(0.5, 0.02, SURVIVE) == pytest.approx(expected, rel=1e-12)
    assert waiting.worth_s(1.0, 1.0, SURVIVE) == pytest.approx(0.89, abs=0.005)  # disagg.md §3.4


@pytest.mark.parametrize(("share", "step_s"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_nothing_missing_or_no_step_time_is_worth_no_wait(share: float, step_s: float) -> None:
    assert waiting.worth_s(share, step_s, SURVIVE) == 0.0
    assert waiting.worth_s(1.0, 1.0, ()) == 0.0


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.lists(st.floats(0, 1), min_size=1, max_size=16))
def test_a_step_never_waits_twice_its_own_time(
    share: float, step_s: float, rates: list[float]
) -> None:
    survive, chance = [], 1.0
    for rate in rates:
        chance *= rate
        survive.append(chance)
    assert 0.0 <= waiting.worth_s(share, step_s, tuple(survive)) < 2.0 * step_s + 1e-12


def test_without_samples_only_the_worth_bounds_the_wait() -> None:
    assert wait(None) == waiting.worth_s(1.0, 0.02, SURVIVE)


def test_the_wait_ends_at_the_arrival_quantile_plus_the_margin() -> None:
    law = waiting.arrival_law(make_arrivals([(0.001, True)] * 20))
    patience = 0.001 * waiting.MARGIN + waiting.MARGIN_S
    assert wait(law) == pytest.approx(patience)
    assert wait(law, age_s=0.001) == pytest.approx(patience - 0.001)
    assert wait(law, age_s=patience + 1e-9) == 0.0


def test_an_unlikely_arrival_is_not_waited_for() -> None:
    slow = waiting.arrival_law(make_arrivals([(0.5, True)] * 20))
    assert wait(slow, step_s=0.02) == 0.0
    assert wait(slow, step_s=1.0) > 0.5


def test_a_drafter_that_never_answers_is_not_waited_for() -> None:
    assert wait(waiting.arrival_law(make_arrivals([(0.01, False)] * 5))) == 0.0


@settings(deadline=None)
@given(samples=SAMPLES, seconds=SECONDS, share=st.floats(0.01, 0.99))
def test_a_time_out_never_shrinks_a_quantile(
    samples: list[tuple[float, bool]], seconds: float, share: float
) -> None:
    before = waiting.arrival_law(make_arrivals(samples))
    after = waiting.arrival_law(waiting.given_up(make_arrivals(samples), seconds))
    assert after is not None
    if before is not None:
        assert after.quantile(share) >= before.quantile(share)


@settings(deadline=None)
@given(samples=SAMPLES.filter(bool), share=st.floats(0.01, 0.99))
def test_time_outs_never_lift_a_quantile_over_the_slowest_answer(
    samples: list[tuple[float, bool]], share: float
) -> None:
    law = waiting.arrival_law(make_arrivals(samples))
    assert law is not None
    answers = [seconds for seconds, answered in samples if answered]
    assert law.quantile(share) <= max(answers, default=0.0)


@settings(deadline=None)
@given(st.lists(SECONDS, min_size=1, max_size=60))
def test_without_time_outs_the_law_is_the_empirical_one(seconds: list[float]) -> None:
    law = waiting.arrival_law(make_arrivals([(s, True) for s in seconds]))
    assert law is not None
    for t in (*seconds, 0.0, 11.0):
        later = sum(s > t for s in seconds) / len(seconds)
        assert law.late(t) == pytest.approx(later, abs=1e-9)


def test_the_window_of_arrivals_is_bounded() -> None:
    state = Arrivals()
    for i in range(3 * waiting.WINDOW):
        state = waiting.arrived(state, float(i))
    assert len(state.samples) == waiting.WINDOW
    assert state.samples[-1] == (3.0 * waiting.WINDOW - 1, True)


def test_positions_behind_a_rejection_are_censored() -> None:
    state = acceptance.verified(Acceptance(), drafted=4, accepted=1)
    assert state.decided == (1.0, 1.0)
    assert state.accepted == (1.0, 0.0)


@pytest.mark.parametrize("rate", [0.2, 0.7, 1.0])
def test_survival_converges_to_the_products_of_the_rates(rate: float) -> None:
    state, debt = Acceptance(), [0.0] * 4
    for _ in range(3000):
        accepted = 0
        while accepted < 4:  # an exact, deterministic stream of this rate per position
            debt[accepted] += rate
            if debt[accepted] < 1.0 - 1e-9:
                break
            debt[accepted] -= 1.0
            accepted += 1
        state = acceptance.verified(state, 4, accepted)
    for k, value in enumerate(acceptance.survival(state, 4)):
        # A position is decided rate^k as often, so its prior weighs as much more.
        assert value == pytest.approx(rate ** (k + 1), abs=0.06)


def test_survival_never_rises_with_the_position() -> None:
    state = acceptance.verified(acceptance.verified(Acceptance(), 8, 8), 8, 0)
    curve = acceptance.survival(state, 8)
    assert list(curve) == sorted(curve, reverse=True)
    assert len(curve) == 8


def test_what_a_step_has_waited_is_taken_off_its_budget() -> None:
    assert waiting.wait_s(0.02, None, waited_s=0.005) == pytest.approx(0.015)
    assert waiting.wait_s(0.02, None, waited_s=1.0) == 0.0


CERTAIN = (1.0,) * 4


@given(
    writers=st.integers(1, 8),
    missing=st.integers(1, 8),
    rates=st.lists(st.floats(0, 1), max_size=4),
)
def test_where_rows_cost_nothing_the_worths_add_up_to_the_designs_formula(
    writers: int, missing: int, rates: list[float]
) -> None:
    missing = min(missing, writers)
    survive = sorted(rates, reverse=True)
    count = len(survive)
    worths = waiting.worths(
        [survive] * writers, [CERTAIN[:count]] * writers, [count] * writers, writers, lambda _: 0.02
    )
    expected = waiting.worth_s(missing / writers, 0.02, survive)
    assert sum(worths[:missing]) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_a_block_that_would_not_be_verified_is_worth_no_wait() -> None:
    assert waiting.worths([SURVIVE] * 2, [CERTAIN] * 2, [0, 0], 2, lambda rows: 1.0) == [0.0, 0.0]
    worths = waiting.worths([SURVIVE] * 2, [CERTAIN] * 2, [0, 4], 2, lambda rows: 1.0)
    assert worths[0] == 0.0
    assert worths[1] > 0.0


def test_only_the_rows_that_would_be_verified_are_priced() -> None:
    def worth(survive: tuple[float, ...]) -> list[float]:
        return waiting.worths([survive], [CERTAIN], [2], 1, lambda rows: 1.0 + 0.1 * rows)

    assert worth((0.7, 0.49, 0.343, 0.24)) == worth((0.7, 0.49, 0.0, 0.0))


def test_a_block_that_seldom_comes_is_worth_as_much_less() -> None:
    def worth(comes: float) -> float:
        reach = tuple(comes * r for r in CERTAIN)
        return sum(waiting.worths([SURVIVE], [reach], [4], 100, lambda rows: 1.0 + 0.001 * rows))

    assert worth(0.1) == pytest.approx(0.1 * worth(1.0), rel=0.02)


def test_rows_that_cost_what_they_bring_are_worth_no_wait() -> None:
    even = waiting.worths([(1.0,)], [(1.0,)], [1], 1, lambda rows: float(rows))
    assert even == pytest.approx([0.0])
    dear = waiting.worths([(0.5,)], [(1.0,)], [1], 1, lambda rows: float(rows))
    assert dear == [0.0]
