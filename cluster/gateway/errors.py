"""Typed errors of the gateway; each knows its HTTP status and its gRPC code.

GatewayError
├── InvalidRequest      400  INVALID_ARGUMENT     param names the field
├── Unauthenticated     401  UNAUTHENTICATED
├── ModelNotFound       404  NOT_FOUND
├── DuplicateRequest    409  ALREADY_EXISTS
├── RequestTooLarge     413  RESOURCE_EXHAUSTED
├── Overloaded          429  RESOURCE_EXHAUSTED   retry_after_s
├── DeadlineExceeded    408  DEADLINE_EXCEEDED
├── NoVerifier          503  UNAVAILABLE          retry_after_s
├── NoPolicy            503  UNAVAILABLE          figures; requests need none
└── RequestFailed       500  INTERNAL             this request alone
"""

from __future__ import annotations

import grpc


class GatewayError(Exception):
    """Base. `code` is the OpenAI error code (a class's own unless given), `type_` its type."""

    status = 500
    grpc_code = grpc.StatusCode.INTERNAL
    code = "internal_error"
    type_ = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        if code is not None:
            self.code = code


class InvalidRequest(GatewayError):
    status = 400
    grpc_code = grpc.StatusCode.INVALID_ARGUMENT
    code = "invalid_value"
    type_ = "invalid_request_error"


class Unauthenticated(GatewayError):
    status = 401
    grpc_code = grpc.StatusCode.UNAUTHENTICATED
    code = "invalid_api_key"
    type_ = "authentication_error"


class ModelNotFound(GatewayError):
    status = 404
    grpc_code = grpc.StatusCode.NOT_FOUND
    code = "model_not_found"
    type_ = "invalid_request_error"


class DuplicateRequest(GatewayError):
    status = 409
    grpc_code = grpc.StatusCode.ALREADY_EXISTS
    code = "duplicate_request_id"
    type_ = "invalid_request_error"


class RequestTooLarge(GatewayError):
    status = 413
    grpc_code = grpc.StatusCode.RESOURCE_EXHAUSTED
    code = "request_too_large"
    type_ = "invalid_request_error"


class Overloaded(GatewayError):
    status = 429
    grpc_code = grpc.StatusCode.RESOURCE_EXHAUSTED
    code = "overloaded"
    type_ = "rate_limit_error"

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, limit: str = ""
    ) -> None:
        """limit: the setting that was reached, as the verifier names it."""
        super().__init__(message, retry_after_s=retry_after_s)
        self.limit = limit


class DeadlineExceeded(GatewayError):
    status = 408
    grpc_code = grpc.StatusCode.DEADLINE_EXCEEDED
    code = "timeout"
    type_ = "timeout_error"


class NoVerifier(GatewayError):
    status = 503
    grpc_code = grpc.StatusCode.UNAVAILABLE
    code = "no_verifier"
    type_ = "service_unavailable_error"

    def __init__(self, message: str, *, retry_after_s: float | None = 1.0) -> None:
        """A verifier that was lost is replaced, so a client is told to come back."""
        super().__init__(message, retry_after_s=retry_after_s)


class NoPolicy(GatewayError):
    status = 503
    grpc_code = grpc.StatusCode.UNAVAILABLE
    code = "no_policy"
    type_ = "service_unavailable_error"


class RequestFailed(GatewayError):
    pass
