"""Asking the policy where there may be several of them: one speaks, and the others say so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from actors.policy.errors import Superseded

logger = logging.getLogger(__name__)

ASK_AGAIN_S = 0.1

T = TypeVar("T")


async def of_the_speaker(ask: Callable[[], Awaitable[T]], within_s: float) -> T:
    """The answer of the policy actor that speaks: asked again, for Serve chooses whom it asks.
    Raises TimeoutError after `within_s`, and whatever else `ask` raises."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                return await ask()
            except Superseded as error:
                logger.info("asked the wrong one of several policy actors: %s", error)
                await asyncio.sleep(ASK_AGAIN_S)
