"""What a call can raise.

PilotfishError
├── InvalidRequestError     the request; `param` names the field
├── AuthenticationError     no API key, or a wrong one
├── NotFoundError           the model is not served here
├── DuplicateRequestError   the request id is in use
├── OverloadedError         at its limit; `retry_after` seconds, when the server says
├── DeadlineExceededError   the time-out has passed (also a builtin TimeoutError)
├── UnavailableError        no server, or it was lost or shut down on the way
├── RequestCancelledError   the stream or its client was closed while it was in use
└── InternalError           this request failed on the server
"""

from __future__ import annotations


class PilotfishError(Exception):
    """Base. `code` is the gRPC status name, `message` the server's words."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "UNKNOWN",
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after


class InvalidRequestError(PilotfishError):
    pass


class AuthenticationError(PilotfishError):
    pass


class NotFoundError(PilotfishError):
    pass


class DuplicateRequestError(PilotfishError):
    pass


class OverloadedError(PilotfishError):
    pass


class DeadlineExceededError(PilotfishError, TimeoutError):
    pass


class UnavailableError(PilotfishError):
    pass


class RequestCancelledError(PilotfishError):
    pass


class InternalError(PilotfishError):
    pass
