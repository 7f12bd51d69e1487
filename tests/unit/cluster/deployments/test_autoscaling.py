"""Serve's side: what its controller is given, and what it hears from a context it would make."""

from __future__ import annotations

import warnings
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from cluster.app import cpus
from cluster.autoscaling_args import Autoscaling, DrafterScaling, VerifierScaling
from cluster.deployments.arguments import ArgumentsError, parse_args
from cluster.deployments.autoscaling import drafter_autoscaling, verifier_autoscaling
from cluster.deployments.engine_options import drafters as drafters_of
from cluster.deployments.engine_options import verifiers as verifiers_of
from policies.autoscale_verifiers import VerifierLoad

IDLE = {f.name: 0.0 for f in fields(VerifierLoad)} | {"most_requests": 4.0}
BUSY = IDLE | {"running": 4.0, "waiting": 5.0}


class Controller:
    """Calls a policy as Serve's controller does: its object once, its state handed back."""

    def __init__(self, config: Any, target: int = 1) -> None:
        self.policy = config.policy.get_policy()(**config.policy.policy_kwargs)
        self.state: dict[str, Any] = {}
        self.target, self.now_s = target, 0.0

    def look(self, *reports: dict[str, float] | None, after_s: float = 1.0) -> int:
        """One replica a report; None: it runs and has not said anything."""
        self.now_s += after_s
        metrics: dict[str, dict[str, float]] = {}
        for number, report in enumerate(reports):
            for name, value in (report or {}).items():
                metrics.setdefault(name, {})[f"r{number}"] = value
        context = SimpleNamespace(
            deployment_name="D",
            running_replicas=[f"r{number}" for number in range(len(reports))],
            target_num_replicas=self.target,
            aggregated_metrics=metrics or None,
            policy_state=dict(self.state),
            current_time=self.now_s,
        )
        self.target, self.state = self.policy(context)
        return self.target


def verifiers(**given: Any) -> Controller:
    settings = {"max_replicas": 3, "upscale_delay_s": 2.0, "downscale_delay_s": 10.0} | given
    return Controller(verifier_autoscaling(VerifierScaling.model_validate(settings)))


def drafters(**given: Any) -> Controller:
    settings = {"min_replicas": 0, "max_replicas": 3, "upscale_delay_s": 2.0} | given
    return Controller(drafter_autoscaling(DrafterScaling.model_validate(settings)))


def drafter(busy: float, wanted: float = 1.0) -> dict[str, float]:
    return {"busy_share": busy, "late_share": 0.0, "wanted": wanted, "sessions": 3.0}


def test_a_load_that_lasts_brings_replicas_and_its_end_takes_them_away() -> None:
    controller = verifiers()
    assert [controller.look(BUSY) for _ in range(3)] == [1, 1, 3]
    assert [controller.look(IDLE, IDLE, IDLE) for _ in range(11)] == [3] * 10 + [1]


def test_without_reports_the_count_stays() -> None:
    controller = verifiers()
    assert controller.look() == 1
    assert controller.look(None, after_s=100.0) == 1


def test_a_replica_that_has_said_nothing_yet_is_no_idle_one() -> None:
    controller = verifiers()
    for _ in range(3):
        controller.look(BUSY, None, None)
    assert controller.target == 3


def test_a_pool_that_nobody_wants_goes_to_zero_and_stays_there() -> None:
    controller = drafters(downscale_to_zero_delay_s=5.0)
    for _ in range(6):
        controller.look(drafter(0.3, wanted=0.0))
    assert controller.target == 0
    assert controller.look(after_s=1000.0) == 0


def test_a_pool_that_was_woken_does_not_remember_that_nobody_wanted_it() -> None:
    controller = drafters(downscale_to_zero_delay_s=5.0)
    for _ in range(6):
        controller.look(drafter(0.0, wanted=0.0))
    controller.target = 1  # Serve started one for the call that waits
    assert controller.look(None) == 1
    for _ in range(20):
        assert controller.look(drafter(0.1)) == 1


def test_busy_drafters_are_joined_by_others() -> None:
    controller = drafters(target_busy_share=0.5)
    for _ in range(4):
        controller.look(drafter(0.9))
    assert controller.target == 2


def test_serve_is_told_its_bounds_and_none_of_its_own_delays() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = drafter_autoscaling(DrafterScaling(min_replicas=0, max_replicas=5))
    assert (config.min_replicas, config.max_replicas) == (0, 5)
    assert config.upscale_delay_s == config.downscale_delay_s == 0.0
    assert config.downscale_to_zero_delay_s == 0.0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"verifier": {"max_replicas": 1, "min_replicas": 2}}, "min_replicas 2 is more than"),
        ({"verifier": {"max_replicas": 2, "min_replicas": 0}}, "greater than or equal to 1"),
        ({"drafter": {"max_replicas": 2, "initial_replicas": 3}}, "initial_replicas 3 is not"),
        ({"drafter": {"max_replicas": 2, "downscale_delay_s": 2}}, "shorter than look_back"),
        ({"drafter": {"max_replicas": 2, "metrics_interval_s": 9}}, "must be longer than"),
        ({"drafter": {"max_replicas": 2, "target_busy_share": 0}}, "target_busy_share"),
        ({"verifier": {"max_replica": 2}}, "max_replica"),
        ({"gateway": {"max_replicas": 2}}, "gateway"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_by_the_field(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        Autoscaling.model_validate(wrong)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            {"verifier": {"num_replicas": 2}, "autoscaling": {"verifier": {"max_replicas": 2}}},
            r"verifier\.num_replicas and autoscaling\.verifier exclude each other",
        ),
        (
            {"drafter": {"num_replicas": 2}, "autoscaling": {"drafter": {"max_replicas": 2}}},
            r"drafter\.num_replicas and autoscaling\.drafter exclude each other",
        ),
        (
            {"speculative_config": None, "autoscaling": {"drafter": {"max_replicas": 2}}},
            r"autoscaling\.drafter: there are no drafters",
        ),
        (
            {"autoscaling": {"verifier": {"max_replica": 2}}},
            r"autoscaling\.verifier\.max_replica: unknown key \(did you mean 'max_replicas'\?\)",
        ),
    ],
)
def test_a_pool_is_counted_or_scaled_and_what_is_wrong_is_named(
    args: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentsError, match=message):
        parse_args(args)


def test_serve_gets_the_way_to_a_number_instead_of_a_number() -> None:
    args = parse_args(
        {
            "autoscaling": {
                "verifier": {"min_replicas": 2, "max_replicas": 4},
                "drafter": {"min_replicas": 0, "max_replicas": 3},
            }
        }
    )
    assert (verifiers_of(args), drafters_of(args)) == ((2, 2, 4), (0, 0, 3))
    assert cpus(args) == pytest.approx(4 * 1.1 + 3 * 0.3 + 0.3 + 0.1)


def test_the_example_of_the_docs_is_taken() -> None:
    page = (Path(__file__).parents[4] / "docs" / "autoscaling.md").read_text()
    example = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    assert drafters_of(parse_args(example["args"])) == (0, 0, 2)
