"""The drafter replica: one mechanism behind its own gRPC server, under a lease of the policy.

The server and the mechanism run on threads of their own, off the replica's event loop, which only
renews the lease. A drafter that is to go says so in its lease and stays until verifiers have moved
their sessions to others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING, Any

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.util.placement_group import get_current_placement_group

from cluster import telemetry
from cluster.config import AppArgs
from cluster.deployments.addresses import this_node
from cluster.deployments.speaking import of_the_speaker
from pilotfish.v1 import control_pb2 as pb
from pilotfish.v1.demand_pb2 import DrafterStanding

if TYPE_CHECKING:
    from cluster.deployments.drafting import Drafting

logger = logging.getLogger(__name__)

RENEW_EVERY_S = 1.0  # a third of the lease: two may be lost
CALL_TIMEOUT_S = 2.0
# Verifiers hear of a drain within two seconds, and move sessions as they commit. Above a hundred of
# them exchange less often; sessions that are left then move when their stream ends.
MOVE_S = 4.0
LOOK_S = 0.05
GRACE_S = 2.0


class Drafter:
    """Registers when it is ready, leaves before it stops."""

    # Serve awaits constructors.
    async def __init__(self, args: AppArgs, policy: DeploymentHandle[Any]) -> None:  # type: ignore[misc]
        self._policy = policy
        context = serve.get_replica_context()
        name = f"drafter-{context.replica_id.unique_id}"
        self._provider = telemetry.setup(
            "pilotfish-drafter", args.otlp_traces_endpoint, {"pilotfish.drafter": name}
        )
        address = this_node(args.data_host)
        self._drafting = await asyncio.to_thread(
            _start_drafting, args, name, address.bind, telemetry.span_sink(self._provider)
        )
        self._endpoint = pb.DrafterEndpoint(
            drafter=name,
            address=address.at(self._drafting.port),
            mechanism=self._drafting.mechanism,
            pid=os.getpid(),
            max_sessions=self._drafting.max_sessions,
            pool=context.deployment,
        )
        self._standing = DrafterStanding(wanted=True)  # until the policy says otherwise
        self._renewing = asyncio.create_task(self._renew_forever())
        # Serve looks for it on the object and awaits it. On the class the collector would call it
        # too, and await nothing.
        self.__del__ = self._leave

    async def placement(self) -> dict[str, Any]:
        """Where this replica is."""
        group = get_current_placement_group()
        return {
            "drafter": self._endpoint.drafter,
            "placement_group": None if group is None else group.id.hex(),
            "gpu_ids": ray.get_gpu_ids(),
            "pid": os.getpid(),
        }

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Load that Serve cannot see: drafts never pass through it."""
        standing = {
            "late_share": self._standing.late_share,
            "wanted": float(self._standing.wanted),
        }
        return self._drafting.load() | standing

    async def awake(self) -> None:
        """A call of it that waits for a replica makes Serve start one (`waking`)."""

    async def check_health(self) -> None:
        """For a drafting thread that died or hangs: gRPC goes on answering without it."""
        if not self._drafting.alive():
            raise RuntimeError("the drafting thread has ended or has not moved for long")

    async def _renew_forever(self) -> None:
        while True:
            try:
                await self._renew()
            except TimeoutError:
                logger.info("the policy did not answer within %.0f s", CALL_TIMEOUT_S)
            except Exception:
                logger.exception("the lease could not be renewed")
            await asyncio.sleep(RENEW_EVERY_S)

    async def _renew(self) -> None:
        endpoint = self._endpoint.SerializeToString()
        answer = await of_the_speaker(lambda: self._policy.renew.remote(endpoint), CALL_TIMEOUT_S)
        self._standing = DrafterStanding.FromString(answer)

    async def _drain(self) -> None:
        """Until no verifier has a session here, or nobody takes them over."""
        if not self._drafting.sessions:
            return
        self._endpoint.draining = True
        try:
            await self._renew()
        except Exception as error:
            logger.info("the policy does not hear that this drafter drains: %r", error)
            return
        until_s = time.monotonic() + MOVE_S
        while self._drafting.sessions and time.monotonic() < until_s:
            await asyncio.sleep(LOOK_S)

    async def _leave(self) -> None:
        """Serve wants this replica gone: sessions move, then the lease ends, then the drafter."""
        await self._drain()
        self._renewing.cancel()
        try:
            name = self._endpoint.drafter
            await of_the_speaker(lambda: self._policy.release.remote(name), CALL_TIMEOUT_S)
        except Exception as error:
            # The policy may be gone before us; the lease then ends by itself.
            logger.info("could not say goodbye to the policy: %r", error)
        await asyncio.to_thread(self._drafting.stop, GRACE_S)
        telemetry.shutdown(self._provider)


def _start_drafting(
    args: AppArgs, name: str, host: str, on_span: telemetry.SpanSink | None
) -> Drafting:
    """Imports torch, which whoever only builds the application should not."""
    from cluster.deployments.drafting import start_drafting

    return start_drafting(args, name, host, on_span)
