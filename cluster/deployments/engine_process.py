"""The engine's own process: a Ray actor in its verifier replica's placement group.

The replica supervises; this process computes. Its gRPC door faces gateways and drafters directly,
so neither tokens nor drafts pass through Ray. Ray calls come on a few threads of their own, none
of them the engine's.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors.engine.options import EngineOptions
from cluster import telemetry
from cluster.deployments.located import located
from cluster.deployments.rank_process import end_process

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from actors.engine.service import EngineService
    from actors.engine.tp.lead import Lead
    from actors.engine.tp.rendezvous import Rendezvous

ALIVE_EVERY_S = 1.0
RAY_THREADS = 4  # run() holds one for good; the others answer the supervisor


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Where the engine listens and what it is, once it is ready."""

    port: int
    pid: int
    device: str


class EngineProcess:
    """Created by a verifier replica; dies with it, and takes it along when it dies."""

    def __init__(self, options: EngineOptions, otlp_traces_endpoint: str | None) -> None:
        if options.threads is not None:
            # Before torch is imported: its pools are sized at import.
            os.environ["OMP_NUM_THREADS"] = str(options.threads)
        self._options = options
        self._otlp_traces_endpoint = otlp_traces_endpoint
        self._service: EngineService | None = None
        self._lead: Lead | None = None
        self._provider: TracerProvider | None = None
        self._ended = threading.Event()

    def gather(self) -> Rendezvous:
        """What the other ranks are started with; `load` then waits for them."""
        from actors.engine.tp.lead import Lead

        self._lead = Lead(self._options.tensor_parallel_size)
        return self._lead.rendezvous

    def load(self, host: str) -> EngineFacts:
        """Load the target and open the door at `host`; tens of seconds. Raises what is wrong
        with the model in one line."""
        from actors.engine.service import EngineService

        options = located(self._options)
        self._provider = telemetry.setup(
            "pilotfish-verifier",
            self._otlp_traces_endpoint,
            {"pilotfish.verifier": options.verifier_id},
        )
        service = EngineService(options, telemetry.span_sink(self._provider), self._lead)
        port = service.start(host)
        if self._lead is not None:
            self._lead.guard(end_process)
        self._service = service
        return EngineFacts(port=port, pid=os.getpid(), device=options.device)

    def run(self) -> None:
        """Returns when the engine has been stopped or its thread has died; a caller that waits
        learns of both, and of this process's end."""
        while not self._ended.wait(ALIVE_EVERY_S):
            if self._service is not None and not self._service.alive():
                return

    def report(self) -> dict[str, Any]:
        """The engine's statistics, with `alive` among them."""
        service = self._loaded()
        return {"alive": service.alive(), **service.stats()}

    def placement(self) -> dict[str, Any]:
        """Where this process is."""
        import ray
        from ray.util.placement_group import get_current_placement_group

        group = get_current_placement_group()
        return {
            "placement_group": None if group is None else group.id.hex(),
            "gpu_ids": ray.get_gpu_ids(),
            "pid": os.getpid(),
        }

    def set_snapshot(self, data: bytes) -> None:
        """A newer `PolicySnapshot` for the rounds to come."""
        self._loaded().set_snapshot(data)

    def stop(self, grace_s: float) -> None:
        """Finish what runs within `grace_s`, then end; `run` returns."""
        if self._service is not None:
            self._service.stop(grace_s)
            if self._lead is not None:
                self._lead.close()
            telemetry.shutdown(self._provider)
        self._ended.set()

    def _loaded(self) -> EngineService:
        if self._service is None:
            raise RuntimeError("the engine has not been loaded")
        return self._service
