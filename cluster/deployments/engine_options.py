"""From the application's arguments to what engines and drafters are started with. Pure."""

from __future__ import annotations

from typing import NamedTuple

from actors.drafters.config import DrafterConfig
from actors.engine.options import EngineOptions, Mechanism
from actors.policy.options import PolicyOptions
from actors.sampling.rules import DEFAULT
from cluster.autoscaling_args import DrafterScaling, VerifierScaling
from cluster.cohort_rules import cohorts_of
from cluster.config import AppArgs, PoolArgs, SpeculativeConfig
from cluster.deployments.pools import drafter_pools

_NOT_THE_DRAFTERS = {"placement", "adaptive", "draft_tensor_parallel_size", "num_drafters"}


def engine_options(args: AppArgs, verifier_id: str) -> EngineOptions:
    """model_path and tokenizer_path are still names here; the engine's node resolves them."""
    speculative = args.speculative_config
    return EngineOptions(
        speculative=drafter_config(args),
        model_path=args.model,
        tokenizer_path=args.tokenizer or "",
        revision=args.revision,
        tensor_parallel_size=args.tensor_parallel_size,
        verifier_id=verifier_id,
        served_model_name=served_model_name(args),
        dtype=args.dtype,
        device=device(args.verifier),
        threads=threads(args.verifier),
        max_model_len=args.max_model_len,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        max_num_queued_reqs=args.max_num_queued_reqs,
        max_num_queued_tokens=args.max_num_queued_tokens,
        block_size=args.block_size,
        kv_cache_memory_bytes=args.kv_cache_memory_bytes,
        enable_prefix_caching=args.enable_prefix_caching,
        enforce_eager=args.enforce_eager,
        batch_invariant=args.batch_invariant,
        adaptive=speculative is not None and speculative.adaptive,
        rule=DEFAULT if speculative is None else speculative.rejection_sample_method,
        placement="remote" if speculative is None else speculative.placement,
        beside=tuple(_mechanism(args, other) for other in args.other_mechanisms),
    )


def _mechanism(args: AppArgs, speculative: SpeculativeConfig) -> Mechanism:
    return Mechanism(_drafter(args, speculative), speculative.placement)


def drafter_config(args: AppArgs) -> DrafterConfig | None:
    """The first mechanism; what it must know of the target is filled in where the target lies."""
    speculative = args.speculative_config
    return None if speculative is None else _drafter(args, speculative)


def _drafter(args: AppArgs, speculative: SpeculativeConfig) -> DrafterConfig:
    colocated = speculative.placement == "colocated"
    pool = args.verifier if colocated else args.drafter
    return DrafterConfig(
        **speculative.model_dump(exclude=_NOT_THE_DRAFTERS),
        target_tokenizer=args.tokenizer or "",
        dtype=args.dtype,
        device=device(pool),
        threads=threads(pool),
        max_context=args.max_model_len or 0,
    )


def policy_options(args: AppArgs) -> PolicyOptions:
    return PolicyOptions(
        depth=args.num_speculative_tokens,
        colocated=any(one.placement == "colocated" for one in args.mechanisms),
        expected_drafters=drafters(args).least,
        state_path=args.policy.state_path or "",
        cohorts=cohorts_of(args.cohorts).names,
        scaled=_may_sleep(args),
    )


def _may_sleep(args: AppArgs) -> tuple[str, ...]:
    """Pools of drafters that the policy has to wake."""
    scaling = args.autoscaling.drafter
    if scaling is None or scaling.min_replicas:
        return ()
    return tuple(pool.name for pool in drafter_pools(args))


def pool_names(args: AppArgs) -> dict[str, str]:
    """Of the pools of drafters, by the mechanism that engines know them by."""
    configs = [(pool.name, drafter_config(pool.args)) for pool in drafter_pools(args)]
    return {config.mechanism: name for name, config in configs if config is not None}


class Replicas(NamedTuple):
    """How many at the start, at least and at most."""

    first: int
    least: int
    most: int


def drafters(args: AppArgs) -> Replicas:
    """Drafter processes of their own, of all pools; none without speculation or with co-located
    drafting."""
    pools = [_replicas(p.args.drafter, args.autoscaling.drafter) for p in drafter_pools(args)]
    return Replicas(*(sum(of) for of in zip((0, 0, 0), *pools, strict=True)))


def verifiers(args: AppArgs) -> Replicas:
    return _replicas(args.verifier, args.autoscaling.verifier)


def _replicas(pool: PoolArgs, scaling: VerifierScaling | DrafterScaling | None) -> Replicas:
    if scaling is None:
        return Replicas(pool.num_replicas, pool.num_replicas, pool.num_replicas)
    return Replicas(scaling.first, scaling.min_replicas, scaling.max_replicas)


def served_model_name(args: AppArgs) -> str:
    return args.served_model_name or args.model


def threads(pool: PoolArgs) -> int:
    """torch threads of one replica: what was asked for, else its share of CPUs."""
    return pool.threads if pool.threads is not None else max(1, int(pool.num_cpus))


def device(pool: PoolArgs) -> str:
    """With GPUs the accelerator Ray gave ("auto"); a pool without never looks for one."""
    return "auto" if pool.num_gpus > 0 else "cpu"
