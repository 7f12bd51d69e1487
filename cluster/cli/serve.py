"""`pilotfish serve`: start, say where, wait for Ctrl-C or SIGTERM, stop cleanly."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from rich.console import Console
from rich.markup import escape

from cluster.config import AppArgs
from cluster.serving import Running, start
from cluster.serving_wait import ServingError


def run(args: AppArgs, host: str, port: int, address: str | None) -> int:
    """Serve until told to stop. The exit code: 0 after a stop, 1 when it could not start."""
    console = Console(stderr=True)
    _terminate_like_interrupt()
    try:
        running = start(args, host, port, address, console=console)
    except ServingError as error:
        console.print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("stopped before it was ready")
        return 130
    _terminate_like_interrupt()  # Ray has put its own handler there
    try:
        _announce(console, running)
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        with console.status("stopping"):
            running.stop()
    console.print("stopped")
    return 0


def _announce(console: Console, running: Running) -> None:
    speculative = running.args.speculative_config
    if speculative is None or speculative.num_speculative_tokens == 0:
        drafting = "off (standard decode)"
    else:
        drafting = (
            f"{speculative.method}, D = {speculative.num_speculative_tokens}, "
            f"{speculative.placement}"
        )
    for name, value in (
        ("model", running.model),
        ("drafting", drafting),
        ("HTTP", f"{running.http_url}/v1"),
        ("gRPC", running.grpc_address),
    ):
        console.print(f"{name:>10}  {escape(value)}", highlight=False)
    console.print("ready; Ctrl-C stops it", highlight=False)


def _terminate_like_interrupt() -> None:
    """SIGTERM, from a supervisor, is Ctrl-C: the same clean stop."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
