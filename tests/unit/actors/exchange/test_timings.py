"""What drafters timed of themselves, on its way to the policy."""

from __future__ import annotations

import logging
import math

import pytest

from actors.exchange.local import LocalPort
from actors.exchange.timing_codec import timings_from_pb, timings_to_pb
from pilotfish.v1.exchange_pb2 import DraftTiming
from tests.drafters.oracle import OracleDrafter
from tests.unit.actors.exchange.helpers import ported, serving

GRID = ((1, 1, 0.5), (1, 8, 0.75), (8, 8, 2.0))


def drafter() -> OracleDrafter:
    return OracleDrafter(lambda prefix, params: 0, 128)


def test_a_verifier_prices_a_remote_drafter_by_what_it_timed_of_itself() -> None:
    with serving(drafter(), timings=GRID) as endpoint, ported(endpoint) as port:
        (arm,) = port.arms
        assert arm.timings == GRID


def test_a_drafter_without_timings_serves() -> None:
    with serving(drafter()) as endpoint, ported(endpoint) as port:
        (arm,) = port.arms
        assert arm.timings == ()


def test_timings_are_no_part_of_what_an_arm_is() -> None:
    (timed,) = LocalPort(drafter(), timings=GRID).arms
    (untimed,) = LocalPort(drafter()).arms
    assert timed.timings == GRID
    assert timed == untimed
    assert hash(timed) == hash(untimed)


def timing(sessions: int = 1, depth: int = 1, seconds: float = 0.5) -> DraftTiming:
    return DraftTiming(sessions=sessions, depth=depth, seconds=seconds)


@pytest.mark.parametrize(
    "bad",
    [
        [timing(sessions=0)],
        [timing(sessions=1 << 20)],
        [timing(depth=0)],
        [timing(depth=65)],
        [timing(seconds=0.0)],
        [timing(seconds=-1.0)],
        [timing(seconds=math.nan)],
        [timing(seconds=math.inf)],
        [timing(), timing()],
        [timing(sessions=n) for n in range(1, 66)],
    ],
)
def test_a_grid_that_cannot_be_is_said_and_left_out(
    bad: list[DraftTiming], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert timings_from_pb([timing(sessions=9), *bad]) == ()
    assert "not used" in caplog.text


def test_a_sound_grid_comes_as_it_was_sent() -> None:
    assert timings_from_pb(timings_to_pb(GRID)) == GRID
