"""How a client reaches its server: target, TLS, API key, channel options, statuses."""

from __future__ import annotations

import ipaddress
import os
from typing import Any, TypeAlias

import grpc

from pilotfish import __version__, _errors
from pilotfish._errors import PilotfishError

TLS: TypeAlias = "bool | str | os.PathLike[str]"
"""False: plain text. True: TLS with the system's roots. A path: TLS with these PEM roots."""

_MAX_RESPONSE_BYTES = 64 << 20

_ERRORS: dict[grpc.StatusCode, type[PilotfishError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: _errors.InvalidRequestError,
    grpc.StatusCode.UNAUTHENTICATED: _errors.AuthenticationError,
    grpc.StatusCode.PERMISSION_DENIED: _errors.AuthenticationError,
    grpc.StatusCode.NOT_FOUND: _errors.NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: _errors.DuplicateRequestError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: _errors.OverloadedError,
    grpc.StatusCode.DEADLINE_EXCEEDED: _errors.DeadlineExceededError,
    grpc.StatusCode.UNAVAILABLE: _errors.UnavailableError,
    # Streams and clients know what they cancelled themselves. Another CANCELLED is a server
    # that shuts down: grpc's core drops with it the calls that arrive in that moment (R05).
    grpc.StatusCode.CANCELLED: _errors.UnavailableError,
}


def channel_options(target: str) -> list[tuple[str, Any]]:
    """Quick reconnects, so that a retry meets a new connection; keepalive on quiet streams."""
    options: list[tuple[str, Any]] = [
        ("grpc.primary_user_agent", f"pilotfish-python/{__version__}"),
        ("grpc.max_receive_message_length", _MAX_RESPONSE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 5000),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
    ]
    if _is_loopback(target):
        options.append(("grpc.enable_http_proxy", 0))
    return options


def credentials(tls: TLS) -> grpc.ChannelCredentials | None:
    """None for plain text. Raises OSError when the file of roots cannot be read."""
    if tls is False:
        return None
    if tls is True:
        return grpc.ssl_channel_credentials()
    with open(tls, "rb") as file:
        return grpc.ssl_channel_credentials(root_certificates=file.read())


def authorization(api_key: str | None) -> list[tuple[str, str]]:
    """The call metadata of an API key; raises ValueError when no header can carry it."""
    if api_key is None:
        return []
    if not api_key or not all("!" <= character <= "~" for character in api_key):
        raise ValueError("an API key is one or more printable ASCII characters without spaces")
    return [("authorization", f"Bearer {api_key}")]


def error_of(error: grpc.RpcError) -> PilotfishError:
    """The typed error of a finished call (sync and asyncio calls alike)."""
    call: Any = error
    code: grpc.StatusCode = call.code()
    trailing = {str(key): value for key, value in call.trailing_metadata() or ()}
    return _ERRORS.get(code, _errors.InternalError)(
        call.details() or code.name,
        code=code.name,
        param=_text(trailing.get("pilotfish-param")),
        retry_after=_pushback(_text(trailing.get("grpc-retry-pushback-ms"))),
    )


def incomplete() -> PilotfishError:
    """A stream that ends without a finish reason was cut on the way (never a clean end)."""
    return _errors.UnavailableError(
        "the stream ended before the output was complete", code="UNAVAILABLE"
    )


def closed() -> PilotfishError:
    return _errors.RequestCancelledError("the stream or its client was closed", code="CANCELLED")


def _text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _pushback(value: str | None) -> float | None:
    try:
        return None if value is None else int(value) / 1000
    except ValueError:
        return None


def _is_loopback(target: str) -> bool:
    host = target.rsplit(":", 1)[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or target.startswith("unix:")
