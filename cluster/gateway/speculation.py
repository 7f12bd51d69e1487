"""A request's speculation, as clients read it: vLLM's `metrics`, SGLang's `sglext`."""

from __future__ import annotations

from typing import Any

from cluster.gateway.settings import SpecMetrics
from cluster.gateway.types import Delta, Stats


def request_metrics(last: Delta, mode: SpecMetrics, configured: int) -> dict[str, Any] | None:
    """vLLM's `PerRequestMetrics`; None when the server is told to give none. `configured`: D."""
    if mode == "none" or last.stats is None or last.timing is None:
        return None
    timing = last.timing
    generation_s = timing.total_s - timing.ttft_s
    return {
        "time_to_first_token_ms": 1e3 * timing.ttft_s,
        "generation_time_ms": 1e3 * generation_s,
        "queue_time_ms": 1e3 * last.stats.queue_s,
        "mean_itl_ms": None if timing.mean_itl_s is None else 1e3 * timing.mean_itl_s,
        "tokens_per_second": (
            (last.completion_tokens - 1) / generation_s if generation_s > 0 else None
        ),
        "speculative_decoding": speculative_decoding(last.stats, configured, mode == "detailed"),
    }


def speculative_decoding(stats: Stats, configured: int, detailed: bool) -> dict[str, Any] | None:
    """vLLM's `SpeculativeDecodingMetrics`. None without a drafted round: a rate of nothing is
    absent, not NaN (S53).

    acceptance_histogram[j]: rounds that accepted exactly j drafts, j = 0 … num_spec_tokens, which
    is `configured` or the largest D that was used.
    """
    if not stats.rounds:
        return None
    bound = max(configured, *stats.per_step_drafted)
    histogram = [0] * (bound + 1)
    for accepted in stats.per_step_accepted:
        histogram[accepted] += 1
    return {
        "mean_acceptance_length": 1 + stats.accepted / stats.rounds,
        "draft_acceptance_rate": stats.accepted / stats.drafted,
        "acceptance_histogram": histogram,
        "num_spec_steps": stats.rounds,
        "num_accepted_draft_tokens": stats.accepted,
        "num_draft_tokens": stats.drafted,
        "num_spec_tokens": bound,
        "per_step_accepted": stats.per_step_accepted if detailed else None,
        "per_step_drafted": stats.per_step_drafted if detailed else None,
    }


def spec_tokens_details(stats: Stats) -> dict[str, Any]:
    """SGLang's `spec_tokens_details` (request field `return_spec_tokens_details`)."""
    histogram = [0] * (max(stats.per_step_accepted, default=0) + 1)
    for accepted in stats.per_step_accepted:
        histogram[accepted] += 1
    return {
        "spec_accept_rate": stats.accepted / stats.drafted if stats.drafted else 0.0,
        "spec_accept_length": 1 + stats.accepted / stats.rounds if stats.rounds else 1.0,
        "spec_num_correct_drafts": stats.accepted,
        "spec_num_proposed_drafts": stats.drafted,
        "spec_verify_ct": stats.rounds,
        "spec_correct_drafts_histogram": histogram,
    }
