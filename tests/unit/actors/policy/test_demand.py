"""What drafters are told of themselves, and which pools are woken."""

from __future__ import annotations

import pytest

from actors.policy import demand
from actors.policy.demand import Demand
from pilotfish.v1 import control_pb2 as control
from pilotfish.v1 import demand_pb2 as pb
from policies.autoscale_pool import HOLD_S


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def made(clock: Clock) -> Demand:
    return Demand(["Drafter"], clock=clock)


def endpoint(name: str = "d0", pool: str = "Drafter") -> control.DrafterEndpoint:
    return control.DrafterEndpoint(drafter=name, pool=pool)


def report(
    why: str = "", verifier: str = "v0", pool: str = "Drafter", late: int = 0, used: int = 0
) -> control.VerifierStatus:
    return control.VerifierStatus(
        verifier=verifier,
        wishes=[pb.DraftWish(pool=pool, why=why)] if why else [],
        links=[control.LinkStatus(drafter="d0", blocks_late=late, blocks_used=used)],
    )


def test_a_wish_wakes_a_pool_without_drafters_until_one_is_there(made: Demand) -> None:
    made.heard(report())
    assert made.wakes() == []
    made.heard(report("used"))
    assert made.wakes() == made.wakes() == ["Drafter"]
    assert made.renewed(endpoint()).wanted
    assert made.wakes() == []


def test_a_pool_that_is_not_scaled_is_nobody_to_wake(clock: Clock) -> None:
    made = Demand(clock=clock)
    made.heard(report("used"))
    assert made.wakes() == []


def test_a_drafter_is_wanted_as_long_as_a_verifier_wants_its_pool(
    made: Demand, clock: Clock
) -> None:
    made.heard(report("used"))
    assert made.renewed(endpoint()).wanted
    clock.now_s += HOLD_S + 0.1
    assert not made.renewed(endpoint()).wanted


def test_a_verifier_that_uses_blocks_wants_the_pool_though_it_does_not_say_so(
    made: Demand, clock: Clock
) -> None:
    made.renewed(endpoint())
    made.heard(report(used=10))
    assert not made.renewed(endpoint()).wanted
    made.heard(report(used=11))
    assert made.renewed(endpoint()).wanted


def test_a_verifier_that_is_gone_wants_nothing(made: Demand, clock: Clock) -> None:
    made.heard(report("used"))
    clock.now_s += HOLD_S + 0.1
    made.heard(report(verifier="v1"))
    assert made.wakes() == []


def test_a_drafter_whose_lease_is_over_leaves_its_pool_at_zero(made: Demand, clock: Clock) -> None:
    made.renewed(endpoint())
    clock.now_s += 3.1
    made.heard(report("used"))
    assert made.wakes() == ["Drafter"]


def test_a_drafter_that_leaves_leaves_at_once(made: Demand) -> None:
    made.renewed(endpoint())
    made.heard(report("used"))
    made.released("d0")
    assert made.wakes() == ["Drafter"]


def test_late_blocks_are_counted_from_one_report_to_the_next(made: Demand) -> None:
    made.renewed(endpoint())
    made.heard(report(late=1000, used=0))  # before this actor was there
    made.heard(report(late=1010, used=30))
    assert made.renewed(endpoint()).late_share == pytest.approx(0.25)
    made.heard(report(verifier="v1"))
    made.heard(report(verifier="v1", late=20, used=20))
    assert made.renewed(endpoint()).late_share == pytest.approx(0.375)


def test_counts_that_go_back_are_nothing_new(made: Demand) -> None:
    made.renewed(endpoint())
    made.heard(report(late=50, used=50))
    made.heard(report(late=0, used=0))
    assert made.renewed(endpoint()).late_share == 0.0


def test_a_reason_that_nobody_knows_is_no_wish(made: Demand) -> None:
    made.heard(report("whim"))
    assert made.wakes() == []


def test_what_peers_invent_is_bounded(made: Demand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "MAX_POOLS", 3)
    monkeypatch.setattr(demand, "MAX_DRAFTERS", 3)
    monkeypatch.setattr(demand, "MAX_VERIFIERS", 3)
    for number in range(10):
        made.heard(report("used", verifier=f"v{number}", pool=f"p{number}"))
        assert made.renewed(endpoint(f"d{number}", pool=f"p{number}")).wanted
    assert max(len(made._pools), len(made._drafters), len(made._verifiers)) <= 3
