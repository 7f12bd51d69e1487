"""What crosses the wire between verifiers and the policy actor, and what is refused of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.policy.errors import ReportRefused
from actors.policy.messages import config_message, live_of, tally_messages, totals_of
from pilotfish.v1 import control_pb2 as pb
from policies.cohorts import MAX_COHORTS
from policies.control import Windows
from policies.estimate import Scored
from policies.live import Live, Settings
from policies.tally import MAX_MECHANISMS, MAX_POSITIONS, Tally
from tests.unit.actors.policy.builders import CHAT, Clock, Verifier, make_service, pooled_blocks

scored = st.integers(1, 20).flatmap(
    lambda asked: st.integers(0, asked).flatmap(
        lambda size: st.integers(0, size).map(lambda right: Scored(asked, size, right))
    )
)


def good(**changes: object) -> pb.Tally:
    fields = {
        "cohort": "chat",
        "mechanism": "suffix",
        "decided": [2.0, 1.0],
        "accepted": [1.0, 0.5],
        "asked": [2.0],
        "came": [2.0],
    }
    return pb.Tally(**(fields | changes))  # type: ignore[arg-type]


@given(st.lists(st.lists(scored, min_size=1, max_size=4), max_size=6))
def test_tallies_come_out_as_they_went_in(sets: list[list[Scored]]) -> None:
    tally = Tally()
    for step, blocks in enumerate(sets):
        tally.note((f"c{step % 3}", f"m{step % 2}"), blocks, step)
    totals = tally.taken().totals
    found = totals_of(tally_messages(totals))
    assert found.keys() == totals.keys()
    for key, counts in totals.items():
        assert found[key].accept.decided == pytest.approx(counts.accept.decided)
        assert found[key].reach.accepted == pytest.approx(counts.reach.accepted)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (good(mechanism=""), "names"),
        (good(cohort="x" * 65), "names"),
        (good(cohort=""), "sum over cohorts"),
        (
            good(decided=[1.0] * (MAX_POSITIONS + 1), accepted=[0.0] * (MAX_POSITIONS + 1)),
            "at most",
        ),
        (good(accepted=[1.0]), "equally many"),
        (good(accepted=[3.0, 0.0]), "accepted <= decided"),
        (good(accepted=[-1.0, 0.0]), "0 <= accepted"),
        (good(decided=[float("nan"), 1.0]), "accepted <= decided"),
        (good(asked=[float("inf")]), "came <= asked"),
    ],
)
def test_a_tally_that_cannot_be_is_refused_and_named(bad: pb.Tally, why: str) -> None:
    with pytest.raises(ReportRefused, match=why):
        totals_of([bad])


def test_more_tallies_than_the_bounds_are_refused() -> None:
    totals_of([good(cohort=f"c{n}") for n in range(MAX_COHORTS)])
    with pytest.raises(ReportRefused, match="65 cohorts"):
        totals_of([good(cohort=f"c{n}") for n in range(MAX_COHORTS + 1)])
    with pytest.raises(ReportRefused, match="17 mechanisms"):
        totals_of([good(mechanism=f"m{n}") for n in range(MAX_MECHANISMS + 1)])
    with pytest.raises(ReportRefused, match="1025"):
        totals_of([good(cohort=f"c{n}") for n in range(1025)])
    with pytest.raises(ReportRefused, match="twice"):
        totals_of([good(), good()])


def test_a_refused_report_changes_nothing_and_its_verifier_is_still_served() -> None:
    """Its snapshots matter more than its tallies."""
    clock, verifier = Clock(), Verifier("v")
    policy = make_service(clock)
    report = pb.VerifierStatus(verifier="v", tally_sequence=9, tallies=[good(accepted=[9, 9])])
    with pytest.raises(ReportRefused):
        policy.exchange(report, 0, 0)
    assert not policy.status().verifiers
    verifier.learn()
    verifier.exchanging.refused()
    verifier.exchange(policy)
    assert verifier.heard > (0, 0)
    assert pooled_blocks(policy, CHAT) == 0.0
    verifier.exchange(make_service(clock, term=2**61))  # another one may think otherwise
    status = pb.VerifierStatus(verifier="v")
    assert verifier.exchanging.report(status, verifier.tally.taken()).tallies


def test_a_configuration_comes_out_as_it_went_in() -> None:
    settings = Settings(5, True, Windows(period=64, steps=1), {"code": 3, "batch": 0})
    live = Live(settings, base=7, changed=9)
    assert live_of(config_message(live)) == live


@pytest.mark.parametrize(
    "change",
    [
        {"depth": 33},
        {"control": pb.ControlWindows(steps=8, period=8)},
        {"cohorts": [pb.CohortLimit(cohort="a"), pb.CohortLimit(cohort="a")]},
        {"cohorts": [pb.CohortLimit(cohort="a", depth=99)]},
        {"cohorts": [pb.CohortLimit(cohort="")]},
        {"cohorts": [pb.CohortLimit(cohort=f"c{n}") for n in range(MAX_COHORTS + 1)]},
    ],
)
def test_a_configuration_that_nobody_could_have_set_is_refused(change: dict[str, object]) -> None:
    fields = {"depth": 4, "control": pb.ControlWindows(steps=2, period=128)} | change
    with pytest.raises(ReportRefused, match="config"):
        live_of(pb.PolicyConfig(**fields))  # type: ignore[arg-type]
