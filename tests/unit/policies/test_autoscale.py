"""Counts of replicas on a simulated clock: random loads, and loads that are out to make it flap."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.autoscale import BLIND_S, Limits, Look, Memory, steadied

UP_S, DOWN_S = 5.0, 30.0
LIMITS = Limits(1, 8, UP_S, DOWN_S, DOWN_S)
TO_ZERO = Limits(0, 8, UP_S, DOWN_S, 60.0)


@dataclass
class Run:
    """Looks in, counts out, second by second."""

    limits: Limits = LIMITS
    count: int = 1
    now_s: float = 1000.0
    memory: Memory = Memory()  # noqa: RUF009  it is frozen
    longest: int = 0

    def __post_init__(self) -> None:
        self.changes: list[tuple[float, int, int]] = []

    def look(self, look: Look, after_s: float = 1.0) -> int:
        self.now_s += after_s
        before = self.count
        self.count, self.memory = steadied(self.memory, look, before, self.now_s, self.limits)
        if self.count != before:
            self.changes.append((self.now_s, before, self.count))
        self.longest = max(self.longest, len(self.memory.lows), len(self.memory.highs))
        return self.count

    def for_s(self, seconds: float, look: Look) -> int:
        for _ in range(int(seconds)):
            self.look(look)
        return self.count


def looks(most: int = 10) -> st.SearchStrategy[Look]:
    return st.tuples(st.integers(0, most), st.integers(0, 3)).map(lambda p: Look(p[0], sum(p)))


traces = st.lists(
    st.tuples(looks(), st.sampled_from([0.1, 0.5, 1.0, 3.0, 10.0])), min_size=1, max_size=150
)


def ran(trace: list[tuple[Look, float]], limits: Limits = LIMITS, count: int = 1) -> Run:
    run = Run(limits, count)
    for look, after_s in trace:
        run.look(look, after_s)
    return run


@given(traces, st.integers(1, 8), looks())
def test_once_looks_stay_the_same_the_count_moves_one_way_and_then_rests(
    trace: list[tuple[Look, float]], count: int, last: Look
) -> None:
    run = ran(trace, count=count)
    run.changes.clear()
    run.for_s(DOWN_S + 1, last)
    directions = {after > before for _, before, after in run.changes}
    assert len(directions) <= 1
    settled = run.count
    assert LIMITS.within(last.add) <= settled <= LIMITS.within(max(last.keep, last.add, 1))
    run.for_s(3 * DOWN_S, last)
    assert run.count == settled


@given(st.integers(1, 8), looks(), looks())
def test_after_a_step_of_the_load_the_count_changes_at_most_once(
    count: int, one: Look, other: Look
) -> None:
    run = Run(count=count)
    run.for_s(2 * DOWN_S, one)
    run.changes.clear()
    run.for_s(4 * DOWN_S, other)
    assert len(run.changes) <= 1


@given(traces, st.integers(1, 8))
def test_whatever_the_load_does_a_fall_and_a_rise_are_a_delay_apart(
    trace: list[tuple[Look, float]], count: int
) -> None:
    changes = ran(trace, count=count).changes
    for (then_s, before, after), (now_s, old, new) in itertools.pairwise(changes):
        if (after > before) and (new < old):
            assert now_s - then_s > DOWN_S - 1e-3
        if (after < before) and (new > old):
            assert now_s - then_s > UP_S - 1e-3


@given(traces, st.integers(0, 12))
def test_the_count_is_within_its_limits_and_what_is_remembered_is_bounded(
    trace: list[tuple[Look, float]], count: int
) -> None:
    for limits in (LIMITS, TO_ZERO):
        run = ran(trace, limits, count)
        assert limits.min_replicas <= run.count <= limits.max_replicas
        assert run.longest <= 14  # distinct values, however long the trace


@given(traces, st.integers(1, 8))
def test_replicas_go_only_where_no_look_of_the_delay_had_a_use_for_them(
    trace: list[tuple[Look, float]], count: int
) -> None:
    run = Run(count=count)
    seen: list[tuple[float, int]] = []
    for look, after_s in trace:
        run.look(look, after_s)
        seen.append((run.now_s, look.keep))
        if run.changes and run.changes[-1][0] == run.now_s:
            _, before, after = run.changes[-1]
            of_late = [keep for at, keep in seen if at > run.now_s - DOWN_S + 1e-3]
            assert after >= before or after >= LIMITS.within(max(of_late))


def test_a_rise_waits_for_its_delay_and_no_longer() -> None:
    run = Run()
    run.look(Look(4, 4))
    assert run.for_s(UP_S - 1, Look(4, 4)) == 1
    assert run.look(Look(4, 4)) == 4


def test_a_peak_shorter_than_the_delay_brings_nobody() -> None:
    run = Run()
    run.for_s(60, Look(1, 1))
    run.for_s(UP_S, Look(8, 8))
    assert run.for_s(60, Look(1, 1)) == 1
    assert run.changes == []


@pytest.mark.parametrize("half_s", [1, 2, 4, 7, 14, 29])
def test_a_square_wave_changes_the_count_at_most_twice_and_idleness_brings_it_back(
    half_s: int,
) -> None:
    """Pitfall R06."""
    run = Run()
    for _ in range(20):
        run.for_s(half_s, Look(6, 6))
        run.for_s(half_s, Look(1, 1))
    assert len(run.changes) <= 1  # up once where a half outlasts the delay, and it stays
    run.for_s(2 * DOWN_S, Look(0, 0))
    assert run.count == 1
    assert len(run.changes) <= 2


def test_the_last_replica_goes_after_a_delay_of_its_own() -> None:
    run = Run(TO_ZERO, count=3)
    run.look(Look(0, 0))
    assert run.for_s(DOWN_S, Look(0, 0)) == 1
    assert run.for_s(29, Look(0, 0)) == 1
    assert run.look(Look(0, 0)) == 0
    assert run.for_s(100, Look(0, 0)) == 0


def test_one_look_with_a_use_for_it_keeps_the_last_replica() -> None:
    run = Run(TO_ZERO, count=1)
    for _ in range(10):
        run.for_s(50, Look(0, 0))
        assert run.look(Look(1, 1)) == 1


def test_after_a_time_without_looks_one_look_decides_nothing() -> None:
    run = Run(count=3)
    run.for_s(100, Look(3, 3))
    run.look(Look(0, 0), after_s=BLIND_S + 1)
    assert run.count == 3
    run.look(Look(8, 8), after_s=BLIND_S + 1)
    assert run.count == 3


def test_a_clock_that_is_put_back_starts_anew() -> None:
    run = Run(count=2)
    run.for_s(100, Look(2, 2))
    run.now_s -= 50
    run.look(Look(8, 8))
    assert run.count == 2
    assert run.for_s(UP_S, Look(8, 8)) == 8


def test_a_look_that_would_add_more_than_it_keeps_is_none() -> None:
    with pytest.raises(ValueError, match="not a look"):
        Look(2, 1)
