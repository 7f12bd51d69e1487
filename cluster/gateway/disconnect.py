"""A client that is gone: the work for it is cancelled, whatever the server under the app does.

Starlette cancels a streaming response only on some servers and a plain handler on none, so both
kinds of answer watch the connection themselves (S56).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """The connection closed before the answer was complete."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. When the client goes first, `work` is cancelled and its clean-up
    awaited, then `ClientGone` is raised. The request's body must have been read."""
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
