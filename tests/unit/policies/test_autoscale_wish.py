"""Which ways to draft a policy's state wants, up or not."""

from __future__ import annotations

from dataclasses import replace

from policies import estimate, estimate_cost, estimate_draft
from policies.autoscale_wish import wants
from policies.choice import Arm, Group, Pick
from policies.choice_hold import Held
from policies.choice_records import Moment
from policies.choice_view import State
from policies.estimate import Scored

HERE, AWAY = Arm("suffix", False, 4), Arm("eagle3", True, 4)
COST = estimate_cost.profiled([estimate_cost.Sample(n, 0.02 + 0.0005 * n) for n in (1, 8, 64)])
CHEAP = estimate_draft.guessed(4)


def learnt(right: int, mechanism: str = "eagle3", blocks: int = 40) -> State:
    """Blocks of four tokens, of which so many were right, have been scored."""
    estimates: estimate.Estimates = {}
    for step in range(blocks):
        scored = [Scored(4, 4, right)]
        estimates, _ = estimate.learnt(estimates, ("c", mechanism), scored, step)
    return State(COST, {AWAY: CHEAP, HERE: CHEAP}, estimates)


def moment(*arms: Arm, step: int = 41, count: int = 2) -> Moment:
    return Moment(step, (Group("c", count, 4),) if count else (), arms)


def test_a_way_that_a_cohort_drafts_by_is_used() -> None:
    state = replace(learnt(4), held=Held({"c": Pick(AWAY, 3)}))
    assert wants(state, moment(AWAY), 4, [AWAY]) == {AWAY: "used"}


def test_a_way_that_would_do_better_is_wanted_while_it_is_away() -> None:
    assert wants(learnt(4), moment(), 4, [AWAY]) == {AWAY: "gain"}


def test_a_way_that_would_not_pay_is_not() -> None:
    assert wants(learnt(0), moment(), 4, [AWAY]) == {}


def test_a_way_of_which_nothing_is_known_is_to_be_looked_at() -> None:
    assert wants(State(COST, {}), moment(), 4, [AWAY]) == {AWAY: "due"}


def test_what_is_known_grows_old_and_is_to_be_looked_at_again() -> None:
    state = learnt(0, blocks=20)
    alone = {k: v for k, v in state.estimates.items() if k[0] != estimate.EVERYONE}
    old = replace(state, estimates=alone)
    assert wants(old, moment(step=21), 4, [AWAY]) == {}
    assert wants(old, moment(step=5000), 4, [AWAY]) == {AWAY: "due"}


def test_what_is_up_and_not_used_is_not_wanted_for_what_it_promises() -> None:
    """The choice itself decides about those, with its hysteresis."""
    assert wants(learnt(4), moment(AWAY), 4, [AWAY]) == {}


def test_nobody_writes_nobody_wants() -> None:
    assert wants(State(COST, {}), moment(count=0), 4, [AWAY]) == {}
    assert wants(State(COST, {}), moment(), 0, [AWAY]) == {}
