"""A port never raises: a bug in it costs drafts, not requests (law L2)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from actors.contracts import Gathered

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def contained(call: Callable[P, None]) -> Callable[P, None]:
    """For calls that answer nothing."""

    @wraps(call)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            call(*args, **kwargs)
        except Exception:
            log.exception("%s failed; its sessions run without drafts", call.__qualname__)

    return guarded


def contained_gather(
    call: Callable[[T, dict[str, int], Mapping[str, float]], Gathered],
) -> Callable[[T, dict[str, int], Mapping[str, float]], Gathered]:
    """For `gather`: every row goes without, with the reason "fault"."""

    @wraps(call)
    def guarded(port: T, wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
        try:
            return call(port, wanted, worth_s)
        except Exception:
            log.exception("%s failed; its rows run without drafts", call.__qualname__)
            return Gathered(missing=dict.fromkeys(wanted, "fault"))

    return guarded
