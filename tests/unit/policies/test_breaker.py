from functools import reduce

from hypothesis import given, settings
from hypothesis import strategies as st

from policies import breaker
from policies.breaker import Breaker, Silence

PATIENCE_S = 0.125  # exact in binary


def silent_round(state: Breaker, now_s: float) -> Breaker:
    """A step that asks at `now_s` and finds nothing by the end of the patience."""
    return breaker.miss(breaker.ask(state, now_s), now_s + PATIENCE_S, PATIENCE_S)


def isolated(now_s: float = 0.0) -> Breaker:
    return reduce(lambda b, i: silent_round(b, now_s + i), range(3), Breaker())


def test_three_misses_isolate_and_two_do_not() -> None:
    two = silent_round(silent_round(Breaker(), 0.0), 1.0)
    assert breaker.admission(two, 1.1) == "all"
    three = silent_round(two, 2.0)
    assert breaker.admission(three, 2.2) == "none"


def test_isolation_lasts_five_seconds_and_then_lets_one_session_probe() -> None:
    state = isolated()
    assert state.until_s is not None
    assert state.until_s == 2.0 + PATIENCE_S + breaker.ISOLATE_S
    assert breaker.admission(state, state.until_s - 0.001) == "none"
    assert breaker.admission(state, state.until_s) == "one"


def test_a_probe_that_fails_doubles_the_isolation_up_to_the_cap() -> None:
    state, pauses = isolated(), []
    for _ in range(6):
        assert state.until_s is not None
        began = state.until_s
        state = silent_round(state, began)
        assert state.until_s is not None
        pauses.append(round(state.until_s - began - PATIENCE_S, 6))
    assert pauses == [10.0, 20.0, 40.0, 80.0, 80.0, 80.0]


def test_a_probe_that_is_answered_closes_the_breaker_and_forgets() -> None:
    state = isolated()
    assert state.until_s is not None
    assert breaker.answer(breaker.ask(state, state.until_s), state.until_s) == Breaker()


def test_a_late_answer_does_not_end_an_isolation() -> None:
    state = breaker.answer(isolated(), 3.0)
    assert breaker.admission(state, 3.0) == "none"


def test_an_answer_between_the_misses_starts_the_count_anew() -> None:
    state = Breaker()
    for i in range(20):
        state = silent_round(state, float(i))
        if i % 2:
            state = breaker.answer(state, i + 0.5)
    assert breaker.admission(state, 20.0) == "all"


def test_many_short_steps_do_not_turn_one_pause_into_three_misses() -> None:
    state = Breaker()
    for i in range(370):
        state = breaker.miss(breaker.ask(state, i / 1000), i / 1000, PATIENCE_S)
    assert breaker.admission(state, 0.37) == "all"
    for i in range(370, 390):
        state = breaker.miss(breaker.ask(state, i / 1000), i / 1000, PATIENCE_S)
    assert breaker.admission(state, 0.39) == "none"


def test_requests_shorter_than_the_patience_do_not_hide_a_silent_drafter() -> None:
    """Each asks, waits half the patience in vain and ends; six halves are three misses."""
    state, half_s = Breaker(), PATIENCE_S / 2
    for i in range(6):
        assert breaker.admission(state, float(i)) == "all"
        state = breaker.ask(state, float(i))
        state = breaker.miss(state, i + half_s, PATIENCE_S)
        state = breaker.left(state, i + half_s)
    assert breaker.admission(state, 5.0 + half_s) == "none"


def test_the_time_between_requests_is_nobodys_silence() -> None:
    state = Breaker()
    for i in range(4):
        state = breaker.left(breaker.ask(state, 100.0 * i), 100.0 * i + PATIENCE_S / 8)
        state = breaker.miss(state, 100.0 * i + 50.0, PATIENCE_S)
    assert state.silence.misses == 0


def test_an_answer_and_a_lost_connection_forget_what_was_waited_in_vain() -> None:
    waited = breaker.left(breaker.ask(Breaker(), 0.0), 1.0)
    assert waited.silence.waited_s == 1.0
    assert breaker.answer(waited, 1.0) == Breaker()
    assert breaker.interrupted(waited) == Breaker()


def test_steps_that_ask_nothing_are_no_misses() -> None:
    state = reduce(lambda b, i: breaker.miss(b, float(i), PATIENCE_S), range(50), Breaker())
    assert state == Breaker()


def test_three_answers_of_nothing_but_failures_isolate_at_once() -> None:
    state = reduce(lambda b, _: breaker.fail(b, 1.0), range(3), Breaker())
    assert breaker.admission(state, 1.0) == "none"


def test_four_misses_of_one_session_lose_it_and_three_do_not() -> None:
    silence = Silence()
    for i in range(4):
        assert not breaker.session_lost(silence)
        silence = breaker.unanswered(breaker.asked(silence, float(i)), i + PATIENCE_S, PATIENCE_S)
    assert breaker.session_lost(silence)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["ask", "answer", "miss", "fail", "wait"]), max_size=80))
def test_an_isolation_is_never_longer_than_the_cap_and_always_ends(events: list[str]) -> None:
    state, now_s = Breaker(), 0.0
    for event in events:
        now_s += 1.0 if event == "wait" else 0.05
        if event == "ask":
            state = breaker.ask(state, now_s)
        elif event == "answer":
            state = breaker.answer(state, now_s)
        elif event == "miss":
            state = breaker.miss(state, now_s, PATIENCE_S)
        elif event == "fail":
            state = breaker.fail(state, now_s)
        if state.until_s is not None:
            assert state.until_s <= now_s + breaker.MAX_ISOLATE_S
            assert breaker.admission(state, state.until_s) == "one"
