"""What stands before every public method: API key, parsing, typed errors.

Messages are parsed here rather than by grpc, which answers an unreadable one with INTERNAL.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from cluster.gateway import grpc_wire
from cluster.gateway.errors import GatewayError, InvalidRequest, RequestFailed, Unauthenticated

logger = logging.getLogger(__name__)
PARAM_KEY = "pilotfish-param"
PUSHBACK_KEY = "grpc-retry-pushback-ms"  # gRPC's own name (proposal A6); negative: do not retry
_MAX_DETAILS = 1000
_BEARER = "Bearer "

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_M = TypeVar("_M", bound=Message)


class Door:
    """Wraps methods into grpc handlers. api_key None lets everybody in."""

    def __init__(self, api_key: str | None) -> None:
        self._api_key = None if api_key is None else api_key.encode()

    def unary(
        self, request: type[_M], method: Callable[[_M, Context], Awaitable[Message]]
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """A method that answers once."""

        async def handle(data: bytes, context: Context) -> Message:
            try:
                return await method(self._enter(request, data, context), context)
            except Exception as error:
                await refuse(context, error)

        return grpc.unary_unary_rpc_method_handler(handle, response_serializer=_serialize)

    def streaming(
        self, request: type[_M], method: Callable[[_M, Context], Awaitable[None]]
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """A method that writes its answers to the context: unlike a generator, it is cancelled
        where it waits and cleans up at once."""

        async def handle(data: bytes, context: Context) -> None:
            try:
                await method(self._enter(request, data, context), context)
            except Exception as error:
                await refuse(context, error)

        return grpc.unary_stream_rpc_method_handler(handle, response_serializer=_serialize)

    def _enter(self, request: type[_M], data: bytes, context: Context) -> _M:
        self._authenticate(context)
        return parse(request, data)

    def _authenticate(self, context: Context) -> None:
        if self._api_key is None:
            return
        given = metadata_of(context).get("authorization", "")
        token = given[len(_BEARER) :] if given[: len(_BEARER)].lower() == _BEARER.lower() else ""
        if not hmac.compare_digest(token.encode(), self._api_key):
            raise Unauthenticated(
                "An API key is needed, as the metadata 'authorization: Bearer KEY'."
                if not given
                else "The API key is not the server's."
            )


def parse(request: type[_M], data: bytes) -> _M:
    """Raises InvalidRequest for what is no such message, or has fields this server cannot know:
    what it does not honour is refused, never ignored."""
    try:
        grpc_wire.check(data, request)
        return request.FromString(data)
    except grpc_wire.WireError as error:
        raise InvalidRequest(error.message, param=error.param) from None
    except DecodeError:
        name = request.DESCRIPTOR.full_name
        text = grpc_wire.broken_text(data, request)
        what = f"{text} is not valid UTF-8." if text else f"The message is no {name}."
        raise InvalidRequest(what, param=text) from None


async def refuse(context: Context, error: Exception) -> NoReturn:
    """End the call with the error's status; what is not typed shows nothing of its inside."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, GatewayError):
        logger.error("a call failed", exc_info=error)
        error = RequestFailed("The request failed.")
    trailing = []
    if error.param:
        trailing.append((PARAM_KEY, error.param.encode("ascii", "replace").decode()))
    if error.retry_after_s is not None:
        trailing.append((PUSHBACK_KEY, str(round(error.retry_after_s * 1000))))
    await context.abort(error.grpc_code, error.message[:_MAX_DETAILS], tuple(trailing))
    raise AssertionError("abort raises")


def metadata_of(context: Context) -> dict[str, str]:
    """The call's text metadata; keys are lower case on the wire."""
    return {k: v for k, v in context.invocation_metadata() or () if isinstance(v, str)}


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
