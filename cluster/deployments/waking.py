"""Pools of drafters at zero are woken by a call that waits for a replica: Serve starts one for it.

That is Serve's own way from zero, so it works however the application was started, and a policy
actor that dies while it waits leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

logger = logging.getLogger(__name__)

AGAIN_S = 5.0
"""A call that failed is not made again sooner."""


class Waker:
    """call: waits until a drafter of the named pool answers."""

    def __init__(self, call: Callable[[str], Awaitable[None]]) -> None:
        self._call = call
        self._calls: dict[str, asyncio.Task[None]] = {}

    def want(self, pools: Collection[str]) -> None:
        """Those to have a drafter, all of them; a pool that is no longer named is not waited for.
        Returns at once."""
        for pool in self._calls.keys() - set(pools):
            self._calls.pop(pool).cancel()
        for pool in pools:
            if pool not in self._calls or self._calls[pool].done():
                self._calls[pool] = asyncio.get_running_loop().create_task(self._wake(pool))

    async def _wake(self, pool: str) -> None:
        logger.info("waking %s", pool)
        try:
            await self._call(pool)
        except Exception as error:
            logger.warning("%s could not be woken: %r", pool, error)
            await asyncio.sleep(AGAIN_S)


def serve_waker() -> Waker:
    """Of the application that this replica is part of."""
    from ray import serve

    app = serve.get_replica_context().app_name

    async def call(pool: str) -> None:
        response = serve.get_deployment_handle(pool, app).awake.remote()
        try:
            await response
        except asyncio.CancelledError:
            response.cancel()
            raise

    return Waker(call)
