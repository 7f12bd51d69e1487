"""What one verifier tells of what it has learnt by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.cohorts import DEFAULT, MAX_COHORTS
from policies.estimate import MEMORY, Scored, learnt
from policies.tally import MAX_MECHANISMS, MAX_POSITIONS, Tally

KEY = ("chat", "suffix")
WHOLE, HALF = Scored(4, 4, 4), Scored(4, 2, 1)
steps = st.lists(st.lists(st.sampled_from([WHOLE, HALF, Scored(4, 0, 0)]), max_size=3), max_size=30)


def test_a_tally_counts_what_was_decided_and_what_came() -> None:
    tally = Tally()
    tally.note(KEY, [WHOLE, HALF], 7)
    counts = tally.taken().totals[KEY]
    assert counts.accept.decided == (2.0, 2.0, 1.0, 1.0)
    assert counts.accept.accepted == (2.0, 1.0, 1.0, 1.0)
    assert counts.reach.decided == (2.0, 2.0, 2.0, 1.0)
    assert counts.reach.accepted == (2.0, 2.0, 1.0, 1.0)
    assert counts.blocks == 2.0


@given(steps)
def test_a_tally_is_what_estimates_that_began_from_nothing_know(sets: list[list[Scored]]) -> None:
    """As long as no text changes: the same counts, faded alike."""
    tally, known = Tally(), {}
    for step, blocks in enumerate(sets):
        known, changed = learnt(known, KEY, blocks, step)
        if changed:
            return
        tally.note(KEY, blocks, step)
    found = tally.taken().totals.get(KEY)
    if found is None:
        assert KEY not in known
        return
    assert found.accept.decided == pytest.approx(known[KEY].accept.decided)
    assert found.accept.accepted == pytest.approx(known[KEY].accept.accepted)
    assert found.reach.decided == pytest.approx(known[KEY].reach.decided)
    assert found.reach.accepted == pytest.approx(known[KEY].reach.accepted)


def test_each_note_makes_a_newer_report_and_taking_it_does_not() -> None:
    tally = Tally()
    assert tally.taken().sequence == 0
    tally.note(KEY, [WHOLE], 1)
    first = tally.taken()
    assert tally.taken() == first
    tally.note(KEY, [], 2)
    assert tally.taken() == first
    tally.note(KEY, [WHOLE], 2)
    assert tally.taken().sequence > first.sequence
    tally.forget("chat")
    assert tally.taken().totals == {}
    assert tally.taken().sequence > first.sequence + 1


def test_evidence_fades_with_the_steps_of_others_too() -> None:
    tally = Tally()
    tally.note(KEY, [WHOLE] * 8, 0)
    tally.note(("code", "suffix"), [WHOLE], int(MEMORY))
    assert tally.taken().totals[KEY].blocks == pytest.approx(8 / 2.718281828)
    tally.note(("code", "suffix"), [WHOLE], int(5 * MEMORY))
    assert KEY not in tally.taken().totals


def test_a_request_without_a_cohort_is_of_the_default_one() -> None:
    tally = Tally()
    tally.note(("", "suffix"), [WHOLE], 0)
    assert list(tally.taken().totals) == [(DEFAULT, "suffix")]
    tally.forget("")
    assert not tally.taken().totals


def test_a_tally_never_holds_more_than_its_bounds_and_the_oldest_goes() -> None:
    tally = Tally()
    for number in range(MAX_COHORTS + 8):
        tally.note((f"c{number}", "suffix"), [Scored(32, 32, 32)], number)
    totals = tally.taken().totals
    assert set(totals) == {(f"c{n}", "suffix") for n in range(8, MAX_COHORTS + 8)}
    for counts in totals.values():
        for acceptance in (counts.accept, counts.reach):
            assert len(acceptance.decided) == len(acceptance.accepted) == MAX_POSITIONS
    other = Tally()
    for number in range(MAX_MECHANISMS + 2):
        other.note(("chat", f"m{number}"), [WHOLE], number)
    assert set(other.taken().totals) == {("chat", f"m{n}") for n in range(2, MAX_MECHANISMS + 2)}
