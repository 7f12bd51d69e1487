"""Start the whole application and end it cleanly: `pilotfish serve`, the demo, the tests.

Without an address a private Ray starts on this machine and goes with us; with one the application
joins that cluster, and only the application goes at the end.
"""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from cluster import serving_local
from cluster.config import AppArgs
from cluster.deployments import names
from cluster.deployments.addresses import host_port
from cluster.deployments.engine_options import verifiers
from cluster.serving_apps import run_apps, start_serve, until_linked
from cluster.serving_checks import check_cluster, check_doors, check_gpus, check_model
from cluster.serving_wait import Progress, ServingError


@dataclass(slots=True)
class Running:
    """A running application; `stop` ends it and everything that was started for it."""

    http_url: str
    grpc_address: str
    model: str
    args: AppArgs
    _stack: ExitStack

    def stop(self) -> None:
        """Idempotent; takes seconds."""
        self._stack.close()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    args: AppArgs,
    host: str = "127.0.0.1",
    port: int = 8000,
    address: str | None = None,
    *,
    console: Console | None = None,
    stop: threading.Event | None = None,
) -> Running:
    """Start serving at http://host:port and return once it answers. Raises ServingError, and
    Interrupted when `stop` was set meanwhile; nothing is then left.

    address: of an existing Ray cluster ("auto", host:port); None starts a private Ray.
    console: shows what is being waited for; None shows nothing.
    """
    if args.verifier.num_replicas < 1:
        raise ServingError("at least one verifier is needed; see --verifiers")
    if address is None:
        check_doors(args, host, port)
        check_model(args, _pull(args, console))
    stack = ExitStack()
    with Progress(console, stop) as progress:
        try:
            args = _on_ray(stack, args, address, progress)
            endpoints = _deploy(stack, args, host, port, progress)
            asked, (host, port) = port, _http_address()
            if asked not in (0, port):
                progress.say(f"Ray Serve listened on {port} already; --port {asked} is not used")
        except BaseException:
            progress.show("stopping")
            stack.close()
            raise
    return Running(
        http_url=f"http://{host_port(host, port)}",
        grpc_address=endpoints["grpc"],
        model=endpoints["model"],
        args=args,
        _stack=stack,
    )


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on now."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _pull(args: AppArgs, console: Console | None) -> Path | str:
    """Bring the model here first, where the terminal can show how far it is."""
    from cluster.models.errors import ModelStoreError
    from cluster.models.progress import Silent, TerminalProgress
    from cluster.models.resolve import resolve

    progress = TerminalProgress(console) if console is not None else Silent()
    try:
        if isinstance(progress, TerminalProgress):
            with progress:
                return resolve(args.model, args.revision, progress)
        return resolve(args.model, args.revision, progress)
    except ModelStoreError as error:
        raise ServingError(str(error)) from None


def _on_ray(stack: ExitStack, args: AppArgs, address: str | None, progress: Progress) -> AppArgs:
    """A Ray to run on; on a private one the verifiers share this machine's cores."""
    if address is not None:
        progress.say(f"joining Ray at {address}")
        check_cluster(address)
        try:
            joined = serving_local.RayThread(
                address=address, logging_level=logging.ERROR, log_to_driver=False
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ServingError(f"cannot join Ray at {address}: {error}") from None
        stack.callback(joined.stop)
        return args
    stack.enter_context(serving_local.environment())
    progress.say("starting Ray")
    from cluster.app import cpus, gpus

    if wanted := gpus(args):
        check_gpus(wanted, serving_local.visible_gpus())
    try:
        local = serving_local.LocalRay(cpus(args), gpus(args))
    except ServingError:
        raise
    except Exception as error:
        # Ray raises plain Exceptions as well: ports, memory, a machine too busy to start it.
        raise ServingError(f"Ray did not start: {error}") from error
    stack.callback(local.stop)
    if args.verifier.threads is not None:
        return args
    ranks = verifiers(args).most * args.tensor_parallel_size
    share = max(1, serving_local.usable_cores() // ranks)
    verifier = args.verifier.model_copy(update={"threads": share})
    return args.model_copy(update={"verifier": verifier})


def _deploy(
    stack: ExitStack, args: AppArgs, host: str, port: int, progress: Progress
) -> dict[str, str]:
    start_serve(host, port, progress)
    stack.callback(_delete)
    (handle,) = run_apps({names.APP: ("/", args)})
    return until_linked(names.APP, handle, progress)


def _http_address() -> tuple[str, int]:
    """Where Serve's proxy listens: not where we asked when a joined cluster already had one."""
    from ray.serve.context import _get_global_client

    options = _get_global_client().http_config
    return str(options.host), int(options.port)


def _delete() -> None:
    from ray import serve

    serve.delete(names.APP)
