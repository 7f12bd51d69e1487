"""A verifier replica's hold on its engine's ranks, all in the replica's placement group.

bundle 0: the replica     bundle 1: rank 0, the engine     bundles 2 …: the other ranks
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import ray
from ray.util.placement_group import get_current_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from actors.engine.options import EngineOptions
from cluster.config import PoolArgs
from cluster.deployments.engine_process import RAY_THREADS, EngineFacts, EngineProcess
from cluster.deployments.rank_process import RAY_THREADS as RANK_THREADS
from cluster.deployments.rank_process import RankProcess


class Ranks:
    """The engine (rank 0) and the others; whoever ends, the group has ended."""

    def __init__(self, options: EngineOptions, pool: PoolArgs, traces: str | None) -> None:
        self.engine = _actor(EngineProcess, pool, 0, RAY_THREADS).remote(options, traces)
        self._others = [
            _actor(RankProcess, pool, rank, RANK_THREADS).remote(options, rank)
            for rank in range(1, options.tensor_parallel_size)
        ]
        self._running: list[asyncio.Future[None]] = []

    async def load(self, host: str) -> EngineFacts:
        """Load the target on every rank and open the engine's door at `host`.

        Raises what was wrong on the first rank that said so.
        """
        if self._others:
            rendezvous = await self.engine.gather.remote()
            self._running = [_future(rank.run.remote(rendezvous)) for rank in self._others]
        loading = _future(self.engine.load.remote(host))
        await asyncio.wait([loading, *self._running], return_when=asyncio.FIRST_COMPLETED)
        if not loading.done():
            # A rank failed. Rank 0 is told why, unless the rank died without a word.
            await asyncio.wait([loading], timeout=5.0)
        for future in (loading, *self._running):
            if future.done() and (error := future.exception()) is not None:
                raise error
        facts: EngineFacts = await loading
        return facts

    async def ended(self) -> None:
        """Returns when the engine or a rank has ended, in whatever way."""
        running = [_future(self.engine.run.remote()), *self._running]
        await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for run in running:
            if run.done():
                run.exception()  # retrieved: the reason is in the process's own log

    async def placements(self) -> list[dict[str, Any]]:
        """Where every rank is, rank 0 first."""
        return list(
            await asyncio.gather(*(a.placement.remote() for a in (self.engine, *self._others)))
        )


def _actor(cls: type[Any], pool: PoolArgs, rank: int, threads: int) -> Any:
    group = get_current_placement_group()
    strategy = (
        "DEFAULT"
        if group is None
        else PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=1 + rank)
    )
    return ray.remote(cls).options(
        num_cpus=pool.num_cpus,
        num_gpus=pool.num_gpus,
        max_concurrency=threads,
        scheduling_strategy=strategy,
    )


def _future(reference: Awaitable[Any]) -> asyncio.Future[Any]:
    return asyncio.ensure_future(reference)
