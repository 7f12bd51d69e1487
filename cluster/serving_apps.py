"""Serve and our applications on a Ray that runs: what `serve` and `bench` both start."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from cluster.config import AppArgs
from cluster.serving_wait import Progress, ServingError, until_running

LINKS_TIMEOUT_S = 20.0
_QUIET = {"log_level": "WARNING"}


def start_serve(host: str, port: int, progress: Progress) -> None:
    """Serve with its HTTP proxy. Raises ServingError."""
    from ray import serve

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    progress.say("starting Ray Serve")
    try:
        serve.start(
            http_options={"host": host, "port": port, "request_timeout_s": None},
            logging_config=_QUIET,
        )
    except Exception as error:
        # A proxy that dies or is too slow comes as any of Ray's exceptions.
        raise ServingError(f"Ray Serve did not start: {error}") from error


def run_apps(apps: Mapping[str, tuple[str, AppArgs]]) -> list[Any]:
    """Their handles, in order, before they are ready. apps: name -> (route prefix, arguments)."""
    from ray.serve.api import RunTarget, run_many

    from cluster.app import build

    targets = [
        RunTarget(target=build(args), name=name, route_prefix=prefix, logging_config=_QUIET)
        for name, (prefix, args) in apps.items()
    ]
    handles: list[Any] = run_many(targets, wait_for_applications_running=False)
    return handles


def until_linked(name: str, handle: Any, progress: Progress) -> dict[str, str]:
    """The addresses of an application's doors, once it runs and its drafters are connected.
    Raises ServingError."""
    until_running(name, progress)
    endpoints: dict[str, str] = handle.endpoints.remote().result(timeout_s=30.0)
    progress.say("connecting drafters")
    handle.wait_for_drafters.remote(LINKS_TIMEOUT_S).result(timeout_s=LINKS_TIMEOUT_S + 10.0)
    return endpoints
