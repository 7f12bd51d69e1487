"""The drafter replica: one mechanism behind its own gRPC server, under a lease of the policy.

The server and the mechanism run on threads of their own, off the replica's event loop, which only
renews the lease.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.util.placement_group import get_current_placement_group

from actors.policy.errors import Superseded
from cluster import telemetry
from cluster.config import AppArgs
from cluster.deployments.addresses import this_node
from pilotfish.v1 import control_pb2 as pb

if TYPE_CHECKING:
    from cluster.deployments.drafting import Drafting

logger = logging.getLogger(__name__)

RENEW_EVERY_S = 1.0  # a third of the lease: two may be lost
ASK_AGAIN_S = 0.1  # where the wrong one of several policy actors was asked
CALL_TIMEOUT_S = 2.0
DRAIN_S = 2.0


class Drafter:
    """Registers when it is ready, leaves before it stops."""

    # Serve awaits constructors.
    async def __init__(self, args: AppArgs, policy: DeploymentHandle[Any]) -> None:  # type: ignore[misc]
        self._policy = policy
        name = f"drafter-{serve.get_replica_context().replica_id.unique_id}"
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
        )
        self._renewing = asyncio.create_task(self._renew_forever())

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
        return self._drafting.load()

    async def check_health(self) -> None:
        """For a drafting thread that died or hangs: gRPC goes on answering without it."""
        if not self._drafting.alive():
            raise RuntimeError("the drafting thread has ended or has not moved for long")

    async def _renew_forever(self) -> None:
        endpoint = self._endpoint.SerializeToString()
        while True:
            pause_s = RENEW_EVERY_S
            try:
                await asyncio.wait_for(self._policy.renew.remote(endpoint), CALL_TIMEOUT_S)
            except Superseded as error:
                logger.info("asked the wrong one of several policy actors: %s", error)
                pause_s = ASK_AGAIN_S
            except TimeoutError:
                logger.info("the policy did not answer within %.0f s", CALL_TIMEOUT_S)
            except Exception:
                logger.exception("the lease could not be renewed")
            await asyncio.sleep(pause_s)

    async def __del__(self) -> None:
        """Leave first, so that verifiers move their sessions; then stop."""
        if not hasattr(self, "_renewing"):
            return
        self._renewing.cancel()
        try:
            release = self._policy.release.remote(self._endpoint.drafter)
            await asyncio.wait_for(release, CALL_TIMEOUT_S)
        except Exception as error:
            # The policy may be gone before us; the lease then ends by itself.
            logger.info("could not say goodbye to the policy: %r", error)
        await asyncio.to_thread(self._drafting.stop, DRAIN_S)
        telemetry.shutdown(self._provider)


def _start_drafting(
    args: AppArgs, name: str, host: str, on_span: telemetry.SpanSink | None
) -> Drafting:
    """Imports torch, which whoever only builds the application should not."""
    from cluster.deployments.drafting import start_drafting

    return start_drafting(args, name, host, on_span)
