"""What the calls of both clients share: metadata, time-outs, retries, and what a stream brought."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from typing import Any

import grpc

from pilotfish import _channel
from pilotfish._errors import InvalidRequestError
from pilotfish._retry import Deadline, RetryPolicy
from pilotfish._trace import trace_metadata
from pilotfish._types import Delta, Generation, delta_of, joined
from pilotfish.v1 import inference_pb2


class Calls:
    """How one client calls. Raises ValueError for a key that no header can carry and
    InvalidRequestError for a time-out or a count of retries that is none."""

    def __init__(self, api_key: str | None, timeout: float | None, retries: int) -> None:
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise _refused("retries", "a whole number of at least 0 is wanted", retries)
        self._authorization = _channel.authorization(api_key)
        self._timeout = _seconds(timeout)
        self._retry = RetryPolicy(retries)

    def metadata(self, options: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Raises InvalidRequestError for a trace context that is none."""
        return self._authorization + trace_metadata(options)

    def deadline(self, options: Mapping[str, Any]) -> Deadline:
        """It runs from now on. Raises InvalidRequestError for a time-out that is none."""
        timeout = _seconds(options["timeout"]) if "timeout" in options else self._timeout
        return Deadline(timeout, time.monotonic())

    def pause(
        self,
        attempt: int,
        error: grpc.RpcError,
        deadline: Deadline,
        *,
        ours: bool,
        received: bool = False,
    ) -> float:
        """Seconds before another attempt; raises the typed error when there is none.

        ours: this side has closed the call. received: some of the answer has come.
        """
        failure = _channel.closed() if ours else _channel.error_of(error)
        left = deadline.left(time.monotonic())
        pause = self._retry.pause(attempt, failure, left, random.random())
        if pause is None or received:
            raise failure from error
        return pause


class Received:
    """What a stream has brought so far."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._deltas: list[Delta] = []

    def __bool__(self) -> bool:
        return bool(self._deltas)

    @property
    def finished(self) -> bool:
        return bool(self._deltas) and self._deltas[-1].finish_reason is not None

    def take(self, message: object) -> Delta:
        """The next delta; raises UnavailableError where the stream ends instead."""
        if not isinstance(message, inference_pb2.GenerateDelta):
            raise _channel.incomplete()
        delta = delta_of(message)
        self._deltas.append(delta)
        return delta

    def whole(self) -> Generation:
        """The output of a stream that has finished."""
        return joined(self._deltas, self._model)


def _seconds(timeout: object) -> float | None:
    """A time-out as it was given: None, or a number of seconds."""
    if timeout is None:
        return None
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not isinstance(timeout, int | float) or not number or not math.isfinite(timeout):
        raise _refused("timeout", "a number of seconds is wanted, or None for no limit", timeout)
    return timeout


def _refused(param: str, what: str, given: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"{param}: {what}, not {str(given)[:40]!r}", code="INVALID_ARGUMENT", param=param
    )
