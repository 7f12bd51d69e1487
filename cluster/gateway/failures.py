"""Errors as HTTP answers, all of one shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import logging
import math

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cluster.gateway.answers import error_body
from cluster.gateway.errors import GatewayError, RequestFailed

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


def unexpected_error(_request: Request, error: Exception) -> Response:
    """A defect: logged in full, told in one sentence."""
    _LOG.error("unexpected error", exc_info=error)
    return JSONResponse(error_body(RequestFailed("The request failed.")), status_code=500)
