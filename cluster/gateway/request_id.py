"""ASGI middleware: every request has an id, and every response carries it, also the errors."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cluster.gateway.resolve import new_request_id

HEADER = b"x-request-id"
_USABLE = re.compile(rb"[!-~]{1,128}")


class RequestId:
    """`scope["state"]["request_id"]` is the client's x-request-id when it is a usable name, else a
    new one; a handler that learns of another (the body's request_id) puts it there."""

    def __init__(self, app: ASGIApp, echo: bool = True) -> None:
        self._app = app
        self._echo = echo

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = next((value for name, value in scope["headers"] if name == HEADER), b"")
        usable = _USABLE.fullmatch(given) is not None
        state = scope.setdefault("state", {})
        state["request_id"] = given.decode("ascii") if usable else new_request_id()

        async def send_with_id(message: Message) -> None:
            if self._echo and message["type"] == "http.response.start":
                echoed = (HEADER, state["request_id"].encode("ascii"))
                message["headers"] = [*message.get("headers", ()), echoed]
            await send(message)

        await self._app(scope, receive, send_with_id)
