"""The newest snapshot decides; a request's own bounds cut it."""

from __future__ import annotations

import pytest

from actors.engine.plan import Plan
from pilotfish.v1 import control_pb2 as control


def make_snapshot(term: int, version: int, depth: int, reason: str = "") -> control.PolicySnapshot:
    return control.PolicySnapshot(
        term=term, version=version, fallback=control.CohortPlan(depth=depth, reason=reason)
    )


def test_older_snapshots_are_ignored_whatever_their_order() -> None:
    plan = Plan(1)
    assert plan.update(make_snapshot(2, 1, depth=4))
    assert not plan.update(make_snapshot(1, 9, depth=7))
    assert not plan.update(make_snapshot(2, 1, depth=8))
    assert plan.depth("any", None, 100).tokens == 4
    assert plan.update(make_snapshot(3, 1, depth=2))
    assert plan.depth("any", None, 100).tokens == 2


@pytest.mark.parametrize(
    ("wish", "remaining", "expected"),
    [
        (None, 100, (4, "")),
        (2, 100, (2, "")),
        (9, 100, (4, "")),
        (0, 100, (0, "client")),
        (None, 3, (2, "")),
        (None, 1, (0, "limit")),
    ],
)
def test_depth_is_the_least_of_plan_wish_and_room(wish, remaining: int, expected) -> None:
    assert tuple(Plan(4).depth("any", wish, remaining)) == expected


def test_depth_zero_says_why() -> None:
    plan = Plan(4)
    plan.update(make_snapshot(1, 1, depth=0, reason="no-drafter"))
    assert plan.depth("any", None, 100) == (0, "no-drafter")


def test_a_cohort_has_its_own_plan() -> None:
    plan = Plan(4)
    snapshot = make_snapshot(1, 1, depth=4)
    snapshot.cohorts.add(cohort="code", depth=7)
    plan.update(snapshot)
    assert plan.depth("code", None, 100).tokens == 7
    assert plan.depth("chat", None, 100).tokens == 4
