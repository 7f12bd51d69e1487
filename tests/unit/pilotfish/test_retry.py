"""Laws of retries and deadlines, on a made-up clock."""

from __future__ import annotations

import pytest

from pilotfish._errors import (
    DeadlineExceededError,
    InternalError,
    InvalidRequestError,
    OverloadedError,
    PilotfishError,
    RequestCancelledError,
    UnavailableError,
)
from pilotfish._retry import Deadline, RetryPolicy


def test_a_deadline_counts_down_to_zero_and_none_never_passes() -> None:
    deadline = Deadline(5.0, start=100.0)
    assert [deadline.left(now) for now in (100.0, 103.0, 105.0, 200.0)] == [5.0, 2.0, 0.0, 0.0]
    assert Deadline(None, 100.0).left(1e9) is None


def test_pauses_grow_and_end_with_the_retries() -> None:
    policy = RetryPolicy(retries=7)
    error = UnavailableError("away")
    pauses = [policy.pause(attempt, error, None, 0.0) for attempt in range(9)]
    assert pauses[:5] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert pauses[5:7] == [2.0, 2.0]
    assert pauses[7:] == [None, None]


def test_jitter_is_bounded() -> None:
    policy = RetryPolicy()
    assert policy.pause(0, UnavailableError("away"), None, 0.999) == pytest.approx(0.125, rel=0.01)


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequestError("no"),
        InternalError("no"),
        DeadlineExceededError("no"),
        RequestCancelledError("no"),
        PilotfishError("no"),
    ],
)
def test_only_a_server_that_is_away_or_full_is_asked_again(error: PilotfishError) -> None:
    assert RetryPolicy().pause(0, error, None, 0.0) is None
    assert RetryPolicy().pause(0, OverloadedError("full"), None, 0.0) is not None


def test_the_servers_word_on_when_wins() -> None:
    policy = RetryPolicy()
    assert policy.pause(0, OverloadedError("full", retry_after=3.0), None, 0.0) == 3.0
    assert policy.pause(0, OverloadedError("too large", retry_after=-1.0), None, 0.0) is None


def test_no_pause_outlasts_the_deadline() -> None:
    policy = RetryPolicy()
    assert policy.pause(0, UnavailableError("away"), 0.05, 0.0) is None
    assert policy.pause(0, UnavailableError("away"), 0.2, 0.0) == 0.1
