"""Errors as HTTP answers, all of one shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import logging
import math

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cluster.gateway.answers import error_body
from cluster.gateway.errors import GatewayError, RequestFailed

CLIENT_CLOSED_REQUEST = 499  # nobody reads it
_LOG = logging.getLogger(__name__)


def gateway_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, GatewayError):
        return unexpected_error(request, error)
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(error_body(error), status_code=error.status, headers=headers)


def http_error(request: Request, error: Exception) -> Response:
    """The framework's own: unknown path, wrong method."""
    if not isinstance(error, HTTPException):
        return unexpected_error(request, error)
    body = {
        "message": str(error.detail),
        "type": "invalid_request_error",
        "param": None,
        "code": "not_found" if error.status_code == 404 else "invalid_request",
    }
    return JSONResponse({"error": body}, status_code=error.status_code, headers=error.headers)


def client_gone(_request: Request, _error: Exception) -> Response:
    """The client left while it still sent its request."""
    return Response(status_code=CLIENT_CLOSED_REQUEST)


def unexpected_error(request: Request, error: Exception) -> Response:
    """A defect: logged in full, told in one sentence. It is answered outside the middleware that
    names requests, so it does that itself."""
    request_id = str(getattr(request.state, "request_id", ""))
    _LOG.error("request %s failed unexpectedly", request_id, exc_info=error)
    body = error_body(RequestFailed("The request failed."))
    return JSONResponse(body, status_code=500, headers={"x-request-id": request_id})
