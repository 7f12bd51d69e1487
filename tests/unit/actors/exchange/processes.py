"""Drafters in processes of their own, so that they can die like real ones."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from actors.exchange.link import Endpoint


@dataclass
class DrafterProcess:
    process: BaseProcess
    endpoint: Endpoint

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def kill(self) -> None:
        """No goodbye: the kernel closes its sockets."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.join(10)

    def pause(self) -> None:
        """Alive and silent: its sockets stay open."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def _serve(pipe: Connection, name: str, info: dict[str, Any]) -> None:
    from actors.exchange.server import DraftingServer
    from tests.unit.actors.exchange.helpers import ToyDrafter

    server = DraftingServer(ToyDrafter(**info), name=name)
    pipe.send(server.start())
    pipe.recv()  # until the parent says stop, or is gone
    server.stop(0.5)


@contextmanager
def drafter_process(name: str, **info: Any) -> Iterator[DrafterProcess]:
    """Spawned, never forked: gRPC's threads and locks do not survive a fork (pitfalls R08)."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, name, info), daemon=True)
    process.start()
    theirs.close()
    try:
        assert ours.poll(60), "the drafter's process did not start"
        yield DrafterProcess(process, Endpoint(name, f"127.0.0.1:{ours.recv()}"))
    finally:
        if process.is_alive():
            os.kill(process.pid or 0, signal.SIGCONT)
            ours.send("stop")
            process.join(10)
        ours.close()
