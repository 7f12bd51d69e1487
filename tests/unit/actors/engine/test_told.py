"""What an engine's policy makes of the snapshots that it is told of."""

from __future__ import annotations

import logging

import pytest

from actors.engine.told import told
from actors.policy.messages import tally_messages
from pilotfish.v1 import control_pb2 as control
from policies.control import Windows
from policies.estimate import Counts, Scored
from tests.unit.policies.test_adaptive import make_moment, make_policy

KEY = ("default", "suffix")


def make_snapshot(**changes: object) -> control.PolicySnapshot:
    counts = Counts().plus([Scored(4, 4, 3)] * 9)
    fields = {"term": 1, "version": 1, "pooled": tally_messages({KEY: counts})} | changes
    return control.PolicySnapshot(**fields)  # type: ignore[arg-type]


def test_a_policy_begins_with_what_the_snapshot_has_learnt() -> None:
    policy = make_policy()
    told(policy, make_snapshot())
    policy.decide(make_moment(0))
    assert policy.state.estimates[KEY].accept.accepted[2] > 0.0


def test_the_controls_windows_follow_the_snapshot_and_keep_the_verifiers_seed() -> None:
    policy = make_policy(windows=Windows("verifier-7"))
    control_windows = control.ControlWindows(steps=4, period=64)
    told(policy, make_snapshot(config=control.PolicyConfig(control=control_windows)))
    assert policy.windows == Windows("verifier-7", 64, 4)
    told(policy, make_snapshot())
    assert policy.windows.period == 64


@pytest.mark.parametrize(
    "bad",
    [
        {"pooled": [control.Tally(cohort="default", mechanism="suffix", decided=[1.0])]},
        {"config": control.PolicyConfig(control=control.ControlWindows(steps=9, period=3))},
    ],
)
def test_a_snapshot_that_cannot_be_changes_nothing_and_is_said(
    bad: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    policy = make_policy()
    windows = policy.windows
    with caplog.at_level(logging.WARNING):
        told(policy, make_snapshot(**bad))
    policy.decide(make_moment(0))
    assert policy.state.estimates == {}
    assert policy.windows == windows
    assert "snapshot 1.1" in caplog.text
