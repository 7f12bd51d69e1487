"""Laws of the takeover decisions, on a made-up clock."""

from __future__ import annotations

import pytest

from cluster.gateway.errors import NoVerifier, Overloaded
from cluster.gateway.verifier_takeover import Loss, Takeover


def make_takeover(patience_s: float = 10.0) -> Takeover:
    return Takeover(patience_s, deadline=patience_s)


def test_a_verifier_that_failed_is_excluded_and_the_next_is_asked_at_once() -> None:
    takeover = make_takeover()
    assert takeover.lost(Loss("a", "broke", admitted=True), 0.0, 0.5) == 0.0
    assert takeover.lost(Loss("b", "broke"), 0.0, 0.5) == 0.0
    assert takeover.excluded == {"a", "b"}


def test_with_none_left_the_excluded_get_another_chance_after_a_pause_that_grows() -> None:
    takeover = make_takeover()
    takeover.lost(Loss("a", "broke", admitted=True), 0.0, 0.5)
    pauses = [takeover.lost(Loss("", "none"), 0.0, 0.5) for _ in range(8)]
    assert not takeover.excluded
    assert pauses == sorted(pauses)
    assert 0.0 < pauses[0] < 0.1
    assert pauses[-1] <= 1.0


def test_patience_runs_from_the_newest_token() -> None:
    takeover = make_takeover(10.0)
    takeover.progressed(8.0)
    assert takeover.lost(Loss("a", "broke"), 17.9, 0.0) == 0.0
    with pytest.raises(NoVerifier, match="broke; gone") as refusal:
        takeover.lost(Loss("b", "gone"), 18.0, 0.0)
    assert refusal.value.retry_after_s is not None  # a 503 says when to come back


def test_a_pause_never_outlasts_the_deadline() -> None:
    takeover = make_takeover(1.0)
    takeover.lost(Loss("a", "broke", admitted=True), 0.0, 0.0)
    with pytest.raises(NoVerifier):
        takeover.lost(Loss("", "none"), 0.99, 0.0)


def test_overload_is_final_only_when_nobody_admitted_the_request() -> None:
    fresh = make_takeover()
    fresh.lost(Loss("a", "full", overloaded=True, limit="max_num_queued_tokens"), 0.0, 0.0)
    with pytest.raises(Overloaded, match="full") as refusal:
        fresh.lost(Loss("", "none"), 0.0, 0.0)
    assert refusal.value.limit == "max_num_queued_tokens"
    admitted = make_takeover()
    admitted.lost(Loss("a", "broke", admitted=True), 0.0, 0.0)
    admitted.lost(Loss("b", "full", overloaded=True), 0.0, 0.0)
    assert admitted.lost(Loss("", "none"), 0.0, 0.0) > 0.0


def test_a_request_refused_until_the_end_is_told_of_the_overload() -> None:
    takeover = make_takeover(10.0)
    takeover.progressed(0.0)
    takeover.lost(Loss("a", "full", overloaded=True), 1.0, 0.0)
    with pytest.raises(Overloaded):
        takeover.lost(Loss("", "none"), 10.0, 0.0)


def test_progress_forgets_earlier_failures() -> None:
    takeover = make_takeover(10.0)
    takeover.lost(Loss("a", "full", overloaded=True), 0.0, 0.0)
    takeover.progressed(1.0)
    assert not takeover.excluded
    takeover.lost(Loss("b", "broke", admitted=True), 2.0, 0.0)
    with pytest.raises(NoVerifier, match="broke"):
        takeover.lost(Loss("", "none"), 11.0, 0.0)
