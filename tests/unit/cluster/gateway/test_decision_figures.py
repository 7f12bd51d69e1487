"""What engines decide reaches /metrics by cohort, with its reason, over all verifiers."""

from __future__ import annotations

from typing import Any

from cluster.deployments.reports import verifier_status
from cluster.gateway.cells import Cells
from cluster.gateway.decision_figures import DecisionFigures
from pilotfish.v1 import control_pb2 as pb
from policies.choice_reasons import MEANING
from policies.cohorts import MAX_COHORTS

COHORTS = ("code", "chat", "default")
STATS: dict[str, Any] = {
    "pid": 1,
    "decisions": {
        ("code", "suffix", "remote", "gain"): 30,
        ("code", "", "", "control"): 2,
        ("chat", "", "", "no-gain"): 8,
    },
    "depths": {("code", "suffix"): 5, ("code", ""): 0, ("chat", ""): 0},
    "ratios": {"code": (1.4, 1.2, 1.6)},
    "alarms": {"code": 1, "chat": 0},
}


class Shown:
    def __init__(self) -> None:
        self._cells = Cells({})
        self.figures = DecisionFigures(self._cells, COHORTS)

    def after(self, **stats: dict[str, Any]) -> dict[str, dict[tuple[str, ...], float]]:
        """Series by family after these engines were heard, keyed by their label values."""
        reports = [verifier_status(verifier, of) for verifier, of in stats.items()]
        self.figures.update(pb.Status(verifiers=reports))
        return {
            family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
            for family in self._cells.collect()
        }


def grown(**more: Any) -> dict[str, Any]:
    """STATS with some counts larger."""
    return {**STATS, **{name: STATS[name] | change for name, change in more.items()}}


def test_decisions_are_counted_by_cohort_mechanism_placement_and_reason() -> None:
    shown = Shown()
    first = shown.after(v=STATS)
    assert first["pilotfish:decisions"] == {
        ("code", "suffix", "remote", "gain"): 30,
        ("code", "none", "none", "control"): 2,
        ("chat", "none", "none", "no-gain"): 8,
    }
    assert first["pilotfish:draft_length"] == {("code", "suffix"): 5}
    assert first["pilotfish:speculation_ratio"] == {("code",): 1.4}
    assert first["pilotfish:speculation_ratio_low"] == {("code",): 1.2}
    assert first["pilotfish:speculation_ratio_high"] == {("code",): 1.6}
    assert first["pilotfish:change_alarms"] == {("code",): 1}
    assert shown.after(v=STATS) == first


def test_a_mechanism_that_is_left_shows_a_depth_of_zero() -> None:
    shown = Shown()
    shown.after(v=STATS)
    off = grown(decisions={("code", "", "", "slower"): 4}, depths={("code", ""): 0})
    assert shown.after(v=off)["pilotfish:draft_length"] == {("code", "suffix"): 0}
    assert shown.figures.newest["code"].decisions == {("none", "none", "slower"): 4}


def test_while_nobody_asks_what_was_last_decided_stays() -> None:
    shown = Shown()
    shown.after(v=STATS)
    newest = shown.figures.newest["code"]
    again = shown.after(v=STATS)
    assert again["pilotfish:draft_length"] == {("code", "suffix"): 5}
    assert shown.figures.newest["code"].decisions == newest.decisions


def test_of_several_verifiers_counts_add_up_and_the_ratio_is_the_least() -> None:
    other = {
        "pid": 2,
        "decisions": {("code", "suffix", "remote", "gain"): 10},
        "depths": {("code", "suffix"): 7},
        "ratios": {"code": (0.9, 0.8, 1.0)},
    }
    both = Shown().after(a=STATS, b=other)
    assert both["pilotfish:decisions"]["code", "suffix", "remote", "gain"] == 40
    assert both["pilotfish:draft_length"] == {("code", "suffix"): 7}
    assert both["pilotfish:speculation_ratio_high"] == {("code",): 1.0}


def test_decisions_of_an_engine_that_is_gone_stay_counted() -> None:
    shown = Shown()
    shown.after(a=STATS)
    after = shown.after(a={**STATS, "pid": 9})
    assert after["pilotfish:decisions"]["chat", "none", "none", "no-gain"] == 16


def test_cohorts_that_the_rules_do_not_name_are_one_series() -> None:
    """R10: whatever a verifier of another configuration reports."""
    decisions = {(f"c{i}", "suffix", "remote", "gain"): 1 for i in range(500)}
    shown = Shown().after(v={"pid": 1, "decisions": decisions})
    assert shown["pilotfish:decisions"] == {("other", "suffix", "remote", "gain"): 500}


def test_every_reason_of_every_cohort_fits() -> None:
    names = [f"c{i}" for i in range(MAX_COHORTS)]
    cells = Cells({})
    figures = DecisionFigures(cells, names)
    decisions = {
        (name, mechanism, "remote", reason): 1
        for name in names
        for mechanism in ("suffix", "dspark", "eagle3", "mtp")
        for reason in MEANING
    }
    figures.update(pb.Status(verifiers=[verifier_status("v", {"decisions": decisions})]))
    counts = dict(figures.decisions.cells())
    assert len(counts) == len(decisions)
    assert {cell.value for cell in counts.values()} == {1}


def test_an_engine_without_a_policy_reports_nothing_of_cohorts() -> None:
    assert not verifier_status("v", {"pid": 1}).cohorts
    assert Shown().after(v={"pid": 1})["pilotfish:decisions"] == {}
