"""Server-sent events: encoding, and a response that ends with its client."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from json.encoder import encode_basestring
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from typing_extensions import override

from cluster.gateway.disconnect import ClientGone, while_connected
from cluster.gateway.stall import Stalled, StallLimit

DONE = b"data: [DONE]\n\n"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def event(data: Mapping[str, Any]) -> bytes:
    return f"data: {_encode(data)}\n\n".encode()


def quoted(text: str) -> bytes:
    """The text as `event` writes it, with its quotation marks."""
    return encode_basestring(text).encode()


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
            first = await anext(events, b"")  # its errors are no writes' errors
            try:
                async with StallLimit(self._write_timeout_s) as stall:
                    await self._send_all(events, first, send, stall)
            except Stalled as error:
                raise ClientGone from error

    async def _send_all(
        self, events: AsyncGenerator[bytes, None], first: bytes, send: Send, stall: StallLimit
    ) -> None:
        async def write(message: Message) -> None:
            stall.begin()
            try:
                await send(message)
            except OSError as error:
                raise ClientGone from error
            stall.end()

        head = {"status": self.status_code, "headers": self.raw_headers}
        await write({"type": "http.response.start", **head})
        await write(_body(first))
        async for body in events:
            await write(_body(body))
        await write(_body(b"", more=False))


def _body(body: bytes, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}
