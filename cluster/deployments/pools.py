"""Pools of drafters: a deployment for each mechanism that drafts in processes of its own. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.config import AppArgs
from cluster.deployments import names


@dataclass(frozen=True, slots=True)
class DrafterPool:
    """name: of the deployment. args: the application's with the mechanism of its drafters alone,
    and with as many of those as there are to be."""

    name: str
    args: AppArgs


def drafter_pools(args: AppArgs) -> tuple[DrafterPool, ...]:
    """One pool alone is called Drafter; of several each has its mechanism in its name."""
    remote = [one for one in args.mechanisms if one.placement == "remote"]
    pools = []
    for one in remote:
        count = args.drafter.num_replicas if one.num_drafters is None else one.num_drafters
        drafter = args.drafter.model_copy(update={"num_replicas": count})
        own = args.only(one).model_copy(update={"drafter": drafter})
        name = names.DRAFTER if len(remote) == 1 else names.drafter(one.mechanism)
        pools.append(DrafterPool(name, own))
    return tuple(pools)
