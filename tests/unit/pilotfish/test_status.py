"""What verifiers have decided reaches the SDK's status whole."""

from __future__ import annotations

from cluster.deployments.reports import verifier_status
from pilotfish import CohortFigures, Decision
from pilotfish._status import status_of
from pilotfish.v1 import control_pb2 as pb


def test_the_figures_of_each_cohort_are_in_the_status() -> None:
    stats = {
        "decisions": {("code", "suffix", "remote", "gain"): 30, ("chat", "", "", "no-gain"): 8},
        "depths": {("code", "suffix"): 5, ("chat", ""): 0},
        "ratios": {"code": (1.5, 1.25, 1.75)},
        "alarms": {"code": 1},
    }
    (verifier,) = status_of(pb.Status(verifiers=[verifier_status("v", stats)])).verifiers
    assert verifier.cohorts == (
        CohortFigures("chat", (Decision("", "", "no-gain", 8),), {"": 0}, None, 0),
        CohortFigures(
            "code", (Decision("suffix", "remote", "gain", 30),), {"suffix": 5}, (1.5, 1.25, 1.75), 1
        ),
    )
