"""The Serve application: `serve run infra/serve/pilotfish.yaml`, or `cluster.app:build`.

Gateway (HTTP ingress, gRPC) ─▶ Verifier (+ engine process) ◀─▶ Drafter
                └───────────────▶ Policy ◀────────┴───────────────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig

from cluster.config import AppArgs, PoolArgs
from cluster.deployments import names
from cluster.deployments.arguments import parse_args
from cluster.deployments.autoscaling import drafter_autoscaling, verifier_autoscaling
from cluster.deployments.drafter import MOVE_S, Drafter
from cluster.deployments.engine_options import drafters, policy_options, verifiers
from cluster.deployments.gateway import Gateway
from cluster.deployments.policy import Policy
from cluster.deployments.pools import DrafterPool, drafter_pools
from cluster.deployments.verifier import DRAIN_S, Verifier

SUPERVISOR_CPUS = 0.1
POLICY_CPUS = 0.1
CONTROL_CALLS = 64  # status, health and exchange beside the requests

# Seconds until a lost replica is replaced; ten times the default's frequency, cheap all the same.
_HEALTH: dict[str, Any] = {"health_check_period_s": 1.0, "health_check_timeout_s": 10.0}
_SHUTDOWN: dict[str, Any] = {
    "graceful_shutdown_wait_loop_s": 0.1,
    "graceful_shutdown_timeout_s": DRAIN_S + 5.0,
}
# A model that cannot be loaded cannot be loaded a fourth time either.
_RETRIES = 3


def build(args: AppArgs | Mapping[str, Any]) -> Application:
    """The application for `args`: a mapping as in YAML (an unknown key is refused and the known
    ones are named) or `AppArgs`."""
    args = parse_args(args)
    policy = _policy(args)
    verifier = _verifier(args).bind(args, policy)
    pools = [
        _drafter(pool).bind(pool.args, policy)
        for pool in drafter_pools(args)
        if drafters(pool.args).most
    ]
    return _gateway(args).bind(args, verifier, policy, *pools)


def cpus(args: AppArgs) -> float:
    """What the whole application asks Ray for, at most."""
    ranks = args.tensor_parallel_size * args.verifier.num_cpus
    verifier = verifiers(args).most * (ranks + SUPERVISOR_CPUS)
    drafter = drafters(args).most * args.drafter.num_cpus
    return verifier + drafter + args.gateway.num_replicas * args.gateway.num_cpus + POLICY_CPUS


def gpus(args: AppArgs) -> float:
    return (
        verifiers(args).most * args.tensor_parallel_size * args.verifier.num_gpus
        + drafters(args).most * args.drafter.num_gpus
    )


def requests_at_once(args: AppArgs) -> int:
    """Above what the engines take: it is they who say `overloaded`, and why."""
    return args.max_num_seqs + args.max_num_queued_reqs + CONTROL_CALLS


def _policy(args: AppArgs) -> Application:
    options = policy_options(args)
    return (
        serve.deployment(Policy, name=names.POLICY)
        .options(
            num_replicas=1,
            max_ongoing_requests=1024,
            ray_actor_options={"num_cpus": POLICY_CPUS},
            user_config={"num_speculative_tokens": options.depth},
            **_HEALTH,
            **_SHUTDOWN,
        )
        .bind(options)
    )


def _verifier(args: AppArgs) -> serve.Deployment:
    scaling = args.autoscaling.verifier
    return serve.deployment(Verifier, name=names.VERIFIER).options(
        **_count(args.verifier, scaling and verifier_autoscaling(scaling)),
        max_ongoing_requests=requests_at_once(args),
        max_constructor_retry_count=_RETRIES,
        ray_actor_options={"num_cpus": SUPERVISOR_CPUS},
        placement_group_bundles=[
            {"CPU": SUPERVISOR_CPUS},
            *[_bundle(args.verifier)] * args.tensor_parallel_size,
        ],
        placement_group_strategy="STRICT_PACK",
        **_HEALTH,
        **_SHUTDOWN,
    )


def _drafter(of: DrafterPool) -> serve.Deployment:
    pool, scaling = of.args.drafter, of.args.autoscaling.drafter
    return serve.deployment(Drafter, name=of.name).options(
        **_count(pool, scaling and drafter_autoscaling(scaling)),
        max_constructor_retry_count=_RETRIES,
        ray_actor_options={"num_cpus": pool.num_cpus, "num_gpus": pool.num_gpus},
        placement_group_bundles=[_bundle(pool)],
        placement_group_strategy="STRICT_PACK",
        **_HEALTH,
        **_SHUTDOWN | {"graceful_shutdown_timeout_s": MOVE_S + 10.0},
    )


def _gateway(args: AppArgs) -> serve.Deployment:
    return serve.deployment(Gateway, name=names.GATEWAY).options(
        num_replicas=args.gateway.num_replicas,
        max_ongoing_requests=requests_at_once(args) * verifiers(args).most,
        max_constructor_retry_count=_RETRIES,
        ray_actor_options={"num_cpus": args.gateway.num_cpus},
        **_HEALTH,
        **_SHUTDOWN,
    )


def _count(pool: PoolArgs, scaling: AutoscalingConfig | None) -> dict[str, Any]:
    """Serve takes a number of replicas or a way to find it, not both."""
    return (
        {"num_replicas": pool.num_replicas} if scaling is None else {"autoscaling_config": scaling}
    )


def _bundle(pool: PoolArgs) -> dict[str, float]:
    """A placement bundle must ask for something, so a pool of 0 CPUs gets a crumb."""
    bundle = {"CPU": pool.num_cpus or 0.001}
    return bundle | ({"GPU": pool.num_gpus} if pool.num_gpus else {})
