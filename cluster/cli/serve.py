"""`pilotfish serve`: start, say where, wait for Ctrl-C or SIGTERM, stop cleanly."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from rich.console import Console
from rich.markup import escape

from cluster.cli.models import make_ready
from cluster.config import AppArgs
from cluster.serving import Running, start
from cluster.serving_checks import check_doors
from cluster.serving_wait import Interrupted, ServingError


def run(args: AppArgs, host: str, port: int, address: str | None) -> int:
    """Serve until told to stop. The exit code: 0 after a stop, 1 when it could not start, 130
    when it was stopped before it was ready."""
    console = Console(stderr=True)
    try:
        if address is None:
            check_doors(args, host, port)
            make_ready(args)  # before the signals are ours: Ctrl-C ends a download at once
        stop = _stop_signals()
        running = start(args, host, port, address, console=console, stop=stop)
    except ServingError as error:
        console.print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        return 1
    except Interrupted:
        console.print("stopped before it was ready")
        return 130
    try:
        _announce(console, running)
        stop.wait()
    finally:
        with console.status("stopping"):
            running.stop()
    console.print("stopped")
    return 0


def _announce(console: Console, running: Running) -> None:
    drafting = "; ".join(
        f"{one.method}, D = {one.num_speculative_tokens}, {one.placement}"
        for one in running.args.mechanisms
        if one.num_speculative_tokens
    )
    for name, value in (
        ("model", running.model),
        ("drafting", drafting or "off (standard decode)"),
        ("HTTP", f"{running.http_url}/v1"),
        ("gRPC", running.grpc_address),
    ):
        console.print(f"{name:>10}  {escape(value)}", highlight=False)
    console.print("ready; Ctrl-C stops it", highlight=False)


def _stop_signals() -> threading.Event:
    """An event that Ctrl-C and SIGTERM set. The next one is deadly: whoever sends two means it."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    return stop
