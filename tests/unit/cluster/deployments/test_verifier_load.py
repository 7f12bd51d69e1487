"""From an engine's statistics to what the autoscaler is told."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from cluster.autoscaling_args import VerifierScaling
from cluster.deployments.verifier_load import VerifierLoadReport
from policies.autoscale_verifiers import VerifierLoad

STATS: dict[str, Any] = {
    "running": 2,
    "waiting": 3,
    "waiting_tokens": 160,
    "free_blocks": 25,
    "total_blocks": 100,
    "tokens": 1000,
    "prefill_tokens": 5000,
    "standard_steps": [(1, 0.010), (4, 0.010), (8, 0.020), (16, 0.030), (64, 0.080)],
}


def reported(scaling: VerifierScaling | None = None, **stats: Any) -> dict[str, float]:
    made = VerifierLoadReport(scaling, max_num_seqs=16, block_size=16)
    made.note(STATS | stats, now_s=0.0)
    return made.report()


def test_the_report_has_every_field_that_the_policy_reads() -> None:
    assert {f.name for f in fields(VerifierLoad)} <= reported().keys()


def test_an_engine_that_has_said_nothing_yet_has_no_load() -> None:
    report = VerifierLoadReport(None, 16, 16).report()
    assert {name for name, value in report.items() if value} == {"most_requests"}


def test_waiting_prompts_count_as_the_blocks_that_they_will_need() -> None:
    assert reported()["kv_used_share"] == 0.75
    assert reported()["kv_wanted_share"] == 0.85


def test_the_itl_target_bounds_the_batch_by_the_measured_steps() -> None:
    scaling = VerifierScaling(max_replicas=2, target_itl_s=0.020)
    report = reported(scaling)
    assert report["batch"] == 8
    assert report["most_tokens_s"] == 8 / 0.020
    assert report["most_prompt_tokens_s"] == 64 / 0.080


def test_no_target_means_the_places_of_the_engine() -> None:
    assert reported()["batch"] == reported()["most_requests"] == 16
    assert reported(VerifierScaling(max_replicas=2, target_ongoing_requests=5))["batch"] == 5


def test_an_engine_without_measured_steps_concludes_nothing() -> None:
    report = reported(standard_steps=[])
    assert report["batch"] == report["most_tokens_s"] == report["most_prompt_tokens_s"] == 0.0


def test_rates_are_of_whole_seconds_and_never_negative() -> None:
    made = VerifierLoadReport(None, 16, 16)
    made.note(STATS, 0.0)
    made.note(STATS | {"tokens": 1050}, 1.0)
    assert made.report()["tokens_s"] == 0.0
    made.note(STATS | {"tokens": 1300, "prefill_tokens": 5200}, 2.0)
    assert (made.report()["tokens_s"], made.report()["prompt_tokens_s"]) == (150.0, 100.0)
    made.note(STATS | {"tokens": 10, "prefill_tokens": 0}, 4.0)
    assert (made.report()["tokens_s"], made.report()["prompt_tokens_s"]) == (0.0, 0.0)
