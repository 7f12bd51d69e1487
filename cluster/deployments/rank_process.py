"""A tensor-parallel rank other than 0: a Ray actor beside its engine process."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from actors.engine.options import EngineOptions
from cluster.deployments.located import located

if TYPE_CHECKING:
    from actors.engine.tp.rendezvous import Rendezvous

logger = logging.getLogger(__name__)

RAY_THREADS = 2  # run() holds one for good


class RankProcess:
    """Lives as long as rank 0 and its replica do, and takes them along when it dies."""

    def __init__(self, options: EngineOptions, rank: int) -> None:
        if options.threads is not None:
            os.environ["OMP_NUM_THREADS"] = str(options.threads)  # before torch sizes its pools
        self._options = options
        self._rank = rank

    def run(self, rendezvous: Rendezvous) -> None:
        """Load this rank's shard and compute its part of every step. Returns when rank 0 says
        stop; raises what is wrong with the model or a step."""
        from actors.engine.tp.rank import serve_rank

        serve_rank(located(self._options), rendezvous, self._rank, end_process)

    def placement(self) -> dict[str, Any]:
        """Where this process is."""
        import ray

        return {"rank": self._rank, "pid": os.getpid(), "gpu_ids": ray.get_gpu_ids()}


def end_process(reason: str) -> None:
    """A group that lost a rank is of no use, and may hang inside a collective: end at once. The
    replica follows, Serve replaces it, and gateways go on elsewhere."""
    logger.error("this tensor-parallel group ends: %s", reason)
    os._exit(1)
