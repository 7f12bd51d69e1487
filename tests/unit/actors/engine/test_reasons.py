"""Every round says why it drafted so much or nothing, in words of closed sets, to the metrics."""

from __future__ import annotations

from typing import get_args

import pytest

from actors.contracts import Draft
from actors.engine.core import drain
from actors.engine.thread import EngineThread
from actors.engine.ways import Ways
from actors.exchange import status as port
from cluster.deployments.reports import verifier_status
from cluster.gateway.cells import Cells
from cluster.gateway.decision_figures import DecisionFigures
from pilotfish.v1 import control_pb2 as pb
from policies.choice import Arm
from policies.choice_reasons import MEANING, Reason
from policies.choice_records import Plan
from tests.law.harness import request
from tests.unit.actors.engine.test_steering import LONG, PROMPT, engine_with

STANDARD = {"control", "slower", "off", "no-drafter", "no-evidence", "no-gain"}
"""Reasons for which nothing is drafted."""


def test_every_round_has_a_reason_and_a_drafted_one_has_one_for_drafting() -> None:
    engine = engine_with()
    engine.add(request("r", PROMPT, LONG))
    rounds = [event for event in drain(engine) if not event.first]
    known = {*MEANING, *get_args(port.Reason), "limit"}
    assert {event.reason for event in rounds} <= known
    drafted = {event.reason for event in rounds if event.drafted}
    assert drafted
    assert drafted <= set(MEANING) - STANDARD
    assert {event.reason for event in rounds if not event.drafted} & STANDARD


@pytest.mark.parametrize("wish", [1, 3])
def test_a_block_that_the_client_bounds_says_so(wish: int) -> None:
    engine = engine_with()
    engine.add(request("r", PROMPT, LONG, max_draft_len=wish))
    full = [event for event in drain(engine) if event.drafted == wish and not event.finish]
    assert {event.reason for event in full} == {"wish"}


@pytest.mark.parametrize(
    ("plan", "cap", "wish", "kept", "reason"),
    [
        ("gain", 4, None, 4, "gain"),
        ("held", 4, None, 4, "held"),
        ("probe", 4, 4, 4, "probe"),
        ("no-gain", 4, None, 4, "gain"),
        ("gain", 4, None, 2, "budget"),
        ("gain", 2, 2, 2, "wish"),
        ("gain", 2, None, 2, "end"),
        ("gain", 2, 3, 2, "end"),
    ],
)
def test_what_bounds_a_block_is_its_reason(
    plan: Reason, cap: int, wish: int | None, kept: int, reason: str
) -> None:
    """cap: what the request may be asked for; 4 tokens are configured, planned and there."""
    engine = engine_with()
    engine.add(request("r", PROMPT, LONG, max_draft_len=wish))
    (seq,) = engine.sequences.values()
    steering = engine.steering
    assert steering is not None
    seq.depth = cap
    steering._cohorts["r"] = "default"
    steering._ways = {"default": Ways(Plan(Arm("oracle", remote=False), 4, 4, plan))}
    came = Draft((1, 2, 3, 4)[:cap], "oracle", False)
    assert steering.why(seq, came, came.cut(kept)) == reason


def test_the_decisions_of_a_run_are_all_in_the_metrics() -> None:
    engine = engine_with()
    for name in ("a", "b"):
        engine.add(request(name, PROMPT, LONG, cohort=name))
    rounds = [event for event in drain(engine) if not event.first]
    assert engine.steering is not None
    counted = engine.steering.figures
    counted.changed({"a": 1}, {"a": 5, "b": 5})
    cells = Cells({})
    figures = DecisionFigures(cells, ("a", "b", "default"))
    stats = EngineThread(engine).snapshot()
    figures.update(pb.Status(verifiers=[verifier_status("v", stats)]))
    shown = {labels: cell.value for labels, cell in figures.decisions.cells()}
    assert shown == {
        (cohort, mechanism or "none", placement or "none", reason): count
        for (cohort, mechanism, placement, reason), count in counted.decisions.items()
    }
    assert sum(shown.values()) == len(rounds)
    alarms = {labels[0]: cell.value for labels, cell in figures.alarms.cells()}
    assert (alarms["a"], alarms["b"]) == (counted.alarms["a"], counted.alarms["b"])
    assert counted.alarms["b"] >= 1
    assert stats["decisions"] is not counted.decisions
