"""Ray Serve's custom autoscaling policies: reports in, `policies.autoscale*` asked, a count out.

Serve's controller runs these a few times a second, so this module imports nothing heavy (Serve
takes it there by value, `policies` by name). Serve's own delays and factors are off: the pure
policy has them, for Serve would follow the last look where all looks of the delay count.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from policies.autoscale import Limits, Memory, steadied
from policies.autoscale_drafters import DrafterLoad, DrafterTargets, Late
from policies.autoscale_drafters import demand as drafters
from policies.autoscale_verifiers import VerifierLoad, VerifierTargets, strongest
from policies.autoscale_verifiers import demand as verifiers

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingConfig, AutoscalingContext

    from cluster.autoscaling_args import DrafterScaling, VerifierScaling

Decision = tuple[int, dict[str, Any]]
_MODULE = "cluster.deployments.autoscaling"


class VerifierReplicas:
    """Serve calls it with what the verifiers' `record_autoscaling_stats` said."""

    def __init__(self, limits: Mapping[str, Any], targets: Mapping[str, Any]) -> None:
        self._limits = Limits(**limits)
        self._targets = VerifierTargets(**targets)

    def __call__(self, ctx: AutoscalingContext) -> Decision:
        loads = [VerifierLoad(**load) for load in _reports(ctx, VerifierLoad)]
        state = dict(ctx.policy_state)
        if not loads:
            return ctx.target_num_replicas, state
        worth, look = verifiers(loads, self._targets)
        count, state["memory"] = steadied(
            state.get("memory", Memory()), look, ctx.target_num_replicas, _now_s(ctx), self._limits
        )
        signal = strongest(worth)
        _say(ctx, count, f"{signal}, {worth.get(signal, 0.0):.2f} verifiers' worth")
        return count, state


class DrafterReplicas:
    """The same for a pool of drafters. At zero nobody reports: the policy actor's call, which waits
    for a drafter, makes Serve start one."""

    def __init__(self, limits: Mapping[str, Any], targets: Mapping[str, Any]) -> None:
        self._limits = Limits(**limits)
        self._targets = DrafterTargets(**targets)

    def __call__(self, ctx: AutoscalingContext) -> Decision:
        reports = _reports(ctx, DrafterLoad)
        state = dict(ctx.policy_state)
        if not reports:
            return ctx.target_num_replicas, state
        loads = [
            DrafterLoad(of["busy_share"], of["late_share"], of["wanted"] > 0.0) for of in reports
        ]
        now_s = _now_s(ctx)
        signal, look, state["late"] = drafters(
            loads,
            self._targets,
            state.get("late", Late()),
            now_s,
            self._limits.downscale_delay_s,
        )
        count, state["memory"] = steadied(
            state.get("memory", Memory()), look, ctx.target_num_replicas, now_s, self._limits
        )
        _say(ctx, count, signal)
        return count, state


def verifier_autoscaling(scaling: VerifierScaling) -> AutoscalingConfig:
    """What Serve is told of the verifiers."""
    targets = {
        "itl_s": scaling.target_itl_s,
        "ttft_s": scaling.target_ttft_s,
        "kv_usage": scaling.target_kv_cache_usage,
    }
    return _config(scaling, scaling.downscale_delay_s, "VerifierReplicas", targets)


def drafter_autoscaling(scaling: DrafterScaling) -> AutoscalingConfig:
    """What Serve is told of a pool of drafters."""
    to_zero_s = scaling.downscale_to_zero_delay_s
    targets = {"busy_share": scaling.target_busy_share, "late_share": scaling.target_late_share}
    return _config(
        scaling,
        scaling.downscale_delay_s if to_zero_s is None else to_zero_s,
        "DrafterReplicas",
        targets,
    )


def _config(
    scaling: VerifierScaling | DrafterScaling,
    to_zero_s: float,
    policy: str,
    targets: dict[str, Any],
) -> AutoscalingConfig:
    from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

    limits = {
        "min_replicas": scaling.min_replicas,
        "max_replicas": scaling.max_replicas,
        "upscale_delay_s": scaling.upscale_delay_s,
        "downscale_delay_s": scaling.downscale_delay_s,
        "downscale_to_zero_delay_s": to_zero_s,
    }
    with warnings.catch_warnings():
        # Serve calls metrics_interval_s deprecated; in 2.60 it is all that says how often.
        warnings.simplefilter("ignore", DeprecationWarning)
        return AutoscalingConfig(
            min_replicas=scaling.min_replicas,
            initial_replicas=scaling.initial_replicas,
            max_replicas=scaling.max_replicas,
            metrics_interval_s=scaling.metrics_interval_s,
            look_back_period_s=scaling.look_back_period_s,
            upscale_delay_s=0.0,
            downscale_delay_s=0.0,
            downscale_to_zero_delay_s=0.0,
            policy=AutoscalingPolicy(
                policy_function=f"{_MODULE}:{policy}",
                policy_kwargs={"limits": limits, "targets": targets},
            ),
        )


def _reports(ctx: AutoscalingContext, record: type[Any]) -> list[dict[str, float]]:
    """Of every running replica that has said all that `record` wants, its averages."""
    wanted = record.__dataclass_fields__.keys()
    metrics = ctx.aggregated_metrics or {}
    said = [metrics.get(name, {}) for name in wanted]
    replicas = [r for r in ctx.running_replicas if all(r in values for values in said)]
    return [{name: float(v[r]) for name, v in zip(wanted, said, strict=True)} for r in replicas]


def _now_s(ctx: AutoscalingContext) -> float:
    return float(ctx.current_time or 0.0)


def _say(ctx: AutoscalingContext, count: int, why: str) -> None:
    if count != ctx.target_num_replicas:
        logging.getLogger("ray.serve").warning(
            "%s: %d -> %d replicas (%s)", ctx.deployment_name, ctx.target_num_replicas, count, why
        )
