"""Server-sent events: encoding, and a response that ends with its client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from typing_extensions import override

from cluster.gateway.disconnect import ClientGone, while_connected

DONE = b"data: [DONE]\n\n"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def event(data: Mapping[str, Any]) -> bytes:
    return f"data: {_encode(data)}\n\n".encode()


class EventStream(Response):
    """Sends what `events` yields, one body message each.

    The first event is awaited before the status goes out, so an error before it is an ordinary
    error response. The generator is closed whenever the response ends: exhausted, client gone, or
    a client that takes nothing for `write_timeout_s`.
    """

    def __init__(self, events: AsyncGenerator[bytes, None], write_timeout_s: float) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self.headers["content-type"] = "text/event-stream; charset=utf-8"
        self._events = events
        self._write_timeout_s = write_timeout_s

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_connected(receive, self._pump(send))
        except ClientGone:
            return

    async def _pump(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            body = await anext(events, b"")
            await self._send(
                send,
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                },
            )
            await self._send(send, _body(body))
            async for body in events:
                await self._send(send, _body(body))
            await self._send(send, _body(b"", more=False))

    async def _send(self, send: Send, message: Message) -> None:
        try:
            async with asyncio.timeout(self._write_timeout_s):
                await send(message)
        except (TimeoutError, OSError) as error:
            raise ClientGone from error


def _body(body: bytes, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}
