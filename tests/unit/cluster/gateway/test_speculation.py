from __future__ import annotations

from cluster.gateway.speculation import spec_tokens_details, speculative_decoding
from cluster.gateway.types import Stats


def make_stats(drafted: list[int], accepted: list[int]) -> Stats:
    return Stats(
        rounds=len(drafted),
        drafted=sum(drafted),
        accepted=sum(accepted),
        per_step_drafted=drafted,
        per_step_accepted=accepted,
    )


def test_the_histogram_is_dense_and_as_long_as_the_configured_depth() -> None:
    metrics = speculative_decoding(make_stats([2, 1, 2], [2, 0, 2]), 4, detailed=True)
    assert metrics is not None
    assert metrics["acceptance_histogram"] == [1, 0, 2, 0, 0]
    assert metrics["num_spec_tokens"] == 4
    assert metrics["num_spec_steps"] == sum(metrics["acceptance_histogram"]) == 3
    assert metrics["mean_acceptance_length"] == 1 + 4 / 3
    assert metrics["draft_acceptance_rate"] == 4 / 5
    assert (metrics["per_step_drafted"], metrics["per_step_accepted"]) == ([2, 1, 2], [2, 0, 2])


def test_a_depth_beyond_the_configured_one_lengthens_the_histogram() -> None:
    metrics = speculative_decoding(make_stats([3], [3]), 1, detailed=False)
    assert metrics is not None
    assert metrics["acceptance_histogram"] == [0, 0, 0, 1]
    assert metrics["num_spec_tokens"] == 3
    assert metrics["per_step_drafted"] is None


def test_a_request_without_a_drafted_round_has_no_rate() -> None:
    assert speculative_decoding(Stats(), 4, detailed=True) is None
    details = spec_tokens_details(Stats())
    assert (details["spec_accept_rate"], details["spec_accept_length"]) == (0.0, 1.0)
