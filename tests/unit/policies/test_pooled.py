"""What verifiers have learnt, added up, and begun from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.acceptance import Acceptance, survival
from policies.cohorts import MAX_COHORTS
from policies.estimate import (
    ENOUGH_BLOCKS,
    EVERYONE,
    MEMORY,
    Counts,
    Estimate,
    Scored,
    evidence,
    learnt,
)
from policies.pooled import (
    BEGIN_BLOCKS,
    MAX_VERIFIERS,
    MEMORY_S,
    Contribution,
    Pool,
    begun,
    reported,
    summed,
    thinned,
)
from policies.tally import MAX_MECHANISMS, Tally

KEY = ("chat", "suffix")
TENTHS = {0.1: "a", 0.2: "b", 0.3: "c"}
keys = st.tuples(st.sampled_from(["chat", "code"]), st.sampled_from(["suffix", "learned"]))
scored = st.integers(1, 6).flatmap(
    lambda asked: st.integers(0, asked).flatmap(
        lambda size: st.integers(0, size).map(lambda right: Scored(asked, size, right))
    )
)
counts = st.lists(scored, min_size=1, max_size=6).map(lambda blocks: Counts().plus(blocks))
contributions = st.builds(
    Contribution, st.integers(1, 4), st.just(100.0), st.dictionaries(keys, counts, max_size=3)
)
reports = st.lists(st.tuples(st.sampled_from("abc"), contributions), max_size=8)


def pool_of(heard: Sequence[tuple[str, Contribution]]) -> Pool:
    pool: Pool = {}
    for verifier, contribution in heard:
        pool, _ = reported(pool, verifier, contribution)
    return pool


def made(right: int, blocks: int, depth: int = 4) -> Counts:
    return Counts().plus([Scored(depth, depth, right)] * blocks)


@given(reports.flatmap(lambda all_: st.tuples(st.just(all_), st.permutations(all_))))
def test_the_order_of_reports_does_not_matter(
    orders: tuple[list[tuple[str, Contribution]], list[tuple[str, Contribution]]],
) -> None:
    """A sequence number names one report, so two with the same are the same."""
    first: dict[tuple[str, int], Contribution] = {}
    for verifier, of in orders[0]:
        first.setdefault((verifier, of.sequence), of)
    one, other = (
        pool_of([(verifier, first[verifier, of.sequence]) for verifier, of in order])
        for order in orders
    )
    assert one == other
    assert summed(one, 130.0) == summed(other, 130.0)


def test_the_same_sum_to_the_bit_in_whatever_order_they_came() -> None:
    parts = {name: Contribution(1, 0.0, {KEY: made(2, 1).faded(k)}) for k, name in TENTHS.items()}
    backwards = dict(reversed(parts.items()))
    assert summed(parts, 0.0) == summed(backwards, 0.0)
    assert summed(parts, 0.0)[KEY].blocks == 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1


@given(reports)
def test_a_report_that_comes_again_changes_nothing(
    heard: list[tuple[str, Contribution]],
) -> None:
    pool = pool_of(heard)
    for verifier, of in heard:
        late = Contribution(of.sequence, of.heard_s + 50.0, of.totals)
        assert reported(pool, verifier, late) == (pool, False)


@given(reports, st.floats(0.0, 1e5))
def test_sums_are_what_verifiers_sent_and_never_more(
    heard: list[tuple[str, Contribution]], later_s: float
) -> None:
    pool = pool_of(heard)
    sums = summed(pool, 100.0 + later_s)
    for (cohort, mechanism), total in sums.items():
        sent = sum(
            counts.blocks
            for of in pool.values()
            for key, counts in of.totals.items()
            if key[1] == mechanism and cohort in (EVERYONE, key[0])
        )
        assert total.blocks == pytest.approx(sent * math.exp(-later_s / MEMORY_S))
        for part in (total.accept, total.reach):
            for every, some in zip(part.decided, part.accepted, strict=True):
                assert 0.0 <= some <= every


@given(reports, contributions, st.data())
def test_more_accepted_by_one_verifier_never_lowers_what_others_begin_with(
    heard: list[tuple[str, Contribution]], one: Contribution, data: st.DataObject
) -> None:
    if not one.totals:
        return
    key = data.draw(st.sampled_from(sorted(one.totals)))
    old = one.totals[key].accept
    if not old.decided:
        return
    position = data.draw(st.integers(0, len(old.decided) - 1))
    more = list(old.accepted)
    more[position] = old.decided[position]
    better = Counts(Acceptance(old.decided, tuple(more)), one.totals[key].reach)
    others = pool_of(heard)
    chances = []
    for totals in (one.totals, {**one.totals, key: better}):
        pool = {**others, "z": Contribution(1, 100.0, totals)}
        chances.append(survival(begun({}, summed(pool, 100.0), [key[0]], 0)[key].accept, 6))
    assert all(b >= a - 1e-12 for a, b in zip(*chances, strict=True))


def test_a_pool_is_bounded_and_the_least_evidence_goes() -> None:
    pool: Pool = {}
    for number in range(MAX_VERIFIERS):
        pool, _ = reported(pool, f"v{number}", Contribution(1, 0.0, {KEY: made(2, 2)}))
    pool, _ = reported(pool, "rich", Contribution(1, 0.0, {KEY: made(2, 9)}))
    assert len(pool) == MAX_VERIFIERS
    assert "rich" in pool
    many = {(f"c{n:03}", f"m{m:02}"): made(2, 1) for n in range(70) for m in range(20)}
    rich = {(f"c{n:03}", f"m{m:02}"): made(2, 2) for n in range(6, 70) for m in range(4, 20)}
    pool = {"a": Contribution(1, 0.0, many), "b": Contribution(1, 0.0, rich)}
    sums = summed(pool, 0.0)
    assert {cohort for cohort, _ in sums} - {EVERYONE} == {f"c{n:03}" for n in range(6, 70)}
    assert {mechanism for _, mechanism in sums} == {f"m{m:02}" for m in range(4, 20)}
    assert len(sums) == (MAX_COHORTS + 1) * MAX_MECHANISMS


def test_the_evidence_of_a_verifier_that_is_gone_fades_away() -> None:
    pool, _ = reported({}, "a", Contribution(1, 0.0, {KEY: made(2, 4)}))
    assert summed(pool, MEMORY_S)[KEY].blocks == pytest.approx(4 / math.e)
    assert thinned(pool, MEMORY_S) == pool
    assert thinned(pool, 3 * MEMORY_S) == {}


def test_a_verifier_begins_a_cohort_with_enough_to_believe_and_little_to_unlearn() -> None:
    pooled = {KEY: made(3, 4000), (EVERYONE, "suffix"): made(2, 9000)}
    fresh = begun({}, pooled, ["chat"], 50)
    assert evidence(fresh, *KEY, 50) == BEGIN_BLOCKS >= ENOUGH_BLOCKS
    assert evidence(fresh, "never seen", "suffix", 50) == ENOUGH_BLOCKS
    known = fresh
    for step in range(51, 71):
        known, _ = learnt(known, KEY, [Scored(4, 4, 0)], step)
    own = known[KEY].accept
    assert own.accepted[0] / own.decided[0] < 0.3


def test_what_a_verifier_knows_itself_is_never_touched() -> None:
    own, _ = learnt({}, KEY, [Scored(4, 4, 0)], 10)
    after = begun(own, {KEY: made(4, 100), ("code", "suffix"): made(4, 100)}, ["chat"], 20)
    assert after == own
    both = begun(own, {KEY: made(4, 100), ("chat", "learned"): made(4, 100)}, ["chat"], 20)
    assert both[KEY] == own[KEY]
    assert both["chat", "learned"].step == 20


def test_a_cohort_forgotten_since_is_begun_anew() -> None:
    own, _ = learnt({}, KEY, [Scored(4, 4, 0)] * 4, 0)
    late = int(4 * MEMORY)
    again = begun(own, {KEY: made(4, 100)}, ["chat"], late)
    assert again[KEY].accept.accepted[3] == pytest.approx(BEGIN_BLOCKS)
    assert begun(again, {KEY: made(4, 100)}, ["chat"], late) == again


def test_nothing_is_begun_from_next_to_nothing() -> None:
    assert begun({}, {KEY: made(4, 1).faded(0.4)}, ["chat"], 0) == {}
    assert begun({}, {}, ["chat"], 0) == {}


def test_what_was_told_is_never_told_on() -> None:
    """A tally has own blocks only, so no evidence comes back to be counted again."""
    tally, known = Tally(), begun({}, {KEY: made(4, 100)}, ["chat"], 0)
    known, _ = learnt(known, KEY, [Scored(4, 4, 1)], 1)
    tally.note(KEY, [Scored(4, 4, 1)], 1)
    assert isinstance(known[KEY], Estimate)
    assert known[KEY].reach.decided[0] > 8.0
    assert tally.taken().totals[KEY].blocks == 1.0
