"""What is measured: one application a mechanism and placement, all on one private Ray.

Every server has engines, caches and drafters of its own, so nothing that one leg did is left for
another to find; standard decode has a server without any drafter.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from cluster import serving_local
from cluster.bench.legs import Leg, servers_of, speculative_config
from cluster.bench.options import BenchOptions
from cluster.config import AppArgs, PoolArgs
from cluster.serving import free_port
from cluster.serving_apps import run_apps, start_serve, until_linked
from cluster.serving_wait import EXECUTOR_TIMEOUT_S, Progress, ServingError, until_settled
from pilotfish import Client

LEAST_SEQS = 4
OPEN_LOOP_SEQS = 32  # nobody knows how many requests an open loop keeps in flight


@dataclass(frozen=True, slots=True)
class Server:
    """devices: accelerators it has, or 1 for a machine without. keeps: it may keep drafts or
    prefixes across requests. http: its root, None when unknown."""

    name: str
    legs: tuple[Leg, ...]
    grpc: str
    http: str | None
    devices: int
    keeps: bool


def arguments(options: BenchOptions, legs: Sequence[Leg], cores: int) -> AppArgs:
    """A server's configuration. Nothing is kept across requests: no prefix cache, no shared trees,
    so the order of legs and runs is no part of the figures."""
    opened = any(load.rate is not None for load in options.loads)
    fields: dict[str, Any] = {
        "model": options.model,
        "dtype": options.dtype,
        "max_model_len": options.max_model_len,
        "max_num_seqs": max(options.clients, OPEN_LOOP_SEQS if opened else LEAST_SEQS),
        "speculative_config": speculative_config(legs),
        "verifier": PoolArgs(num_cpus=1.0, num_gpus=options.verifier_gpus, threads=cores),
        "drafter": PoolArgs(num_cpus=0.5, num_gpus=options.drafter_gpus, threads=1),
    }
    if "enable_prefix_caching" in AppArgs.model_fields:
        fields["enable_prefix_caching"] = False
    return AppArgs.model_validate(fields)


@contextmanager
def servers(
    options: BenchOptions, console: Console | None, stop: threading.Event
) -> Iterator[list[Server]]:
    """Start them, or take the one that is attached to; what was started ends with the block.

    Raises ServingError with the reason, Interrupted when `stop` was set meanwhile.
    """
    if options.attach is not None:
        yield [_attached(options)]
        return
    with ExitStack() as stack:
        with Progress(console, stop) as progress:
            started = _start(stack, options, progress)
        yield started


def _attached(options: BenchOptions) -> Server:
    """Nobody knows what a server keeps that somebody else configured."""
    return Server(
        name="attached",
        legs=options.legs,
        grpc=options.attach or "",
        http=options.attach_http,
        devices=1,
        keeps=True,
    )


def _start(stack: ExitStack, options: BenchOptions, progress: Progress) -> list[Server]:
    stack.enter_context(serving_local.environment())
    cores = serving_local.usable_cores()
    groups = servers_of(options.legs)
    configured = {name: arguments(options, legs, cores) for name, legs in groups.items()}
    progress.say("starting Ray")
    from cluster.app import cpus, gpus

    try:
        local = serving_local.LocalRay(
            sum(map(cpus, configured.values())), sum(map(gpus, configured.values()))
        )
    except Exception as error:
        # Ray raises plain Exceptions as well: ports, memory, a machine too busy to start it.
        raise ServingError(f"Ray did not start: {error}") from error
    stack.callback(local.stop)
    port = free_port()
    start_serve("127.0.0.1", port, progress)
    stack.callback(_end_serve)
    apps = {f"bench{i}": (name, configured[name]) for i, name in enumerate(configured)}
    handles = run_apps({app: (f"/{app}", args) for app, (_, args) in apps.items()})
    started = []
    for (app, (name, args)), handle in zip(apps.items(), handles, strict=True):
        endpoints = until_linked(app, handle, progress)
        with Client(endpoints["grpc"], timeout=30.0) as client:
            until_settled(client, EXECUTOR_TIMEOUT_S, progress.pause)
        root = f"http://127.0.0.1:{port}/{app}"
        devices = max(1, round(gpus(args)))
        started.append(Server(name, groups[name], endpoints["grpc"], root, devices, keeps=False))
    return started


def _end_serve() -> None:
    from ray import serve

    serve.shutdown()


def served_model(server: Server, api_key: str | None) -> dict[str, object]:
    """id, dtype and max_model_len as the server itself says. Raises PilotfishError."""
    with Client(server.grpc, api_key=api_key, timeout=30.0) as client:
        model = client.models()[0]
    return {"id": model.id, "dtype": model.dtype, "max_model_len": model.max_model_len}
