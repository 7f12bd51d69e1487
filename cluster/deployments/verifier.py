"""The verifier replica: a light supervisor of one engine process.

They share a placement group (`cluster.deployments.ranks`), and live and die together: when the
engine dies, or one of its tensor-parallel ranks, the replica ends its own process, so that Serve
replaces all within seconds instead of after three failed health checks; when the replica dies Ray
ends the others, their owner being gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import suppress
from typing import Any

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from actors.policy.errors import ReportRefused, Superseded
from cluster.config import AppArgs
from cluster.deployments.addresses import this_node
from cluster.deployments.engine_options import engine_options, pool_names
from cluster.deployments.exchanging import Exchanging, tally_of
from cluster.deployments.ranks import Ranks
from cluster.deployments.reports import verifier_status
from cluster.deployments.verifier_load import VerifierLoadReport
from pilotfish.v1 import control_pb2 as pb
from policies.tally import Report

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S = 2.0
HUNG_AFTER_S = 30.0
DRAIN_S = 5.0


class Verifier:
    """Advertises the engine's address; carries load to the policy and snapshots back."""

    # Serve awaits constructors.
    async def __init__(self, args: AppArgs, policy: DeploymentHandle[Any]) -> None:  # type: ignore[misc]
        self._policy = policy
        self._verifier = f"verifier-{serve.get_replica_context().replica_id.unique_id}"
        self._status = pb.VerifierStatus(verifier=self._verifier)
        self._exchanging = Exchanging()
        self._tally: Report | None = None
        self._load = VerifierLoadReport(
            args.autoscaling.verifier, args.max_num_seqs, args.block_size
        )
        self._pools = pool_names(args)
        self._stopping = False
        self._heard_s = time.monotonic()
        address = this_node(args.data_host)
        options = engine_options(args, self._verifier)
        self._ranks = Ranks(options, args.verifier, args.otlp_traces_endpoint)
        self._engine = self._ranks.engine
        self._facts = await self._ranks.load(address.bind)
        self._data_addr = address.at(self._facts.port)
        self._heard_s = time.monotonic()
        self._tasks = [
            asyncio.create_task(self._watch()),
            asyncio.create_task(self._exchange_forever()),
        ]
        # As in `Drafter`: for Serve, which awaits it, and not for the collector.
        self.__del__ = self._leave

    def record_replica_metadata(self) -> dict[str, Any]:
        """What every router learns of this replica; gone with it."""
        return {
            "verifier": self._verifier,
            "data_addr": self._data_addr,
            "pid": os.getpid(),
            "engine_pid": self._facts.pid,
            "device": self._facts.device,
        }

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Load that Serve cannot see: tokens never pass through it."""
        return self._load.report()

    async def status(self) -> bytes:
        """A fresh serialized VerifierStatus."""
        await self._refresh()
        return self._status.SerializeToString()

    async def placement(self) -> dict[str, Any]:
        """Where this replica and its engine are, and each rank of it."""
        ranks = await self._ranks.placements()
        return {"verifier": self._verifier, **ranks[0], "ranks": ranks}

    async def check_health(self) -> None:
        """For hangs only; a dead engine has already ended this process."""
        silent_s = time.monotonic() - self._heard_s
        if silent_s > HUNG_AFTER_S:
            raise RuntimeError(f"the engine has not moved for {silent_s:.0f} s")

    # ------------------------------------------------------------------ tasks

    async def _watch(self) -> None:
        await self._ranks.ended()
        if not self._stopping:
            logger.error("the engine of process %d ended; so does its replica", self._facts.pid)
            os._exit(1)

    async def _exchange_forever(self) -> None:
        while True:
            try:
                await asyncio.wait_for(self._refresh(), CALL_TIMEOUT_S)
                await asyncio.wait_for(self._exchange(), CALL_TIMEOUT_S)
            except TimeoutError:
                # The policy is down or the machine is busy: the newest snapshot stays in force.
                logger.info("no exchange with the policy within %.0f s", CALL_TIMEOUT_S)
            except ReportRefused as error:
                self._exchanging.refused()
                logger.error("the policy refused what this verifier has learnt: %s", error)
            except Superseded as error:
                self._exchanging.superseded()
                logger.info("asked the wrong one of several policy actors: %s", error)
            except Exception:
                logger.exception("the exchange with the policy failed")
            busy = bool(self._status.running or self._status.waiting)
            await asyncio.sleep(self._exchanging.pause_s(busy=busy))

    async def _refresh(self) -> None:
        stats: dict[str, Any] = await self._engine.report.remote()
        if stats["alive"]:
            self._heard_s = time.monotonic()
        self._load.note(stats, time.monotonic())
        stats = {"pid": self._facts.pid, **stats}
        self._status = verifier_status(self._verifier, stats, self._pools)
        self._exchanging.stamp(self._status)
        self._tally = tally_of(stats)

    async def _exchange(self) -> None:
        now = self._exchanging
        report = now.report(self._status, self._tally).SerializeToString()
        data = await self._policy.exchange.remote(report, now.term, now.version)
        newer = now.answered(None if data is None else pb.PolicySnapshot.FromString(data))
        if newer is not None:
            await self._engine.set_snapshot.remote(data)
            now.taken(newer)

    async def _leave(self) -> None:
        """Serve has stopped routing here: finish what runs, then stop the engine."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        with suppress(ray.exceptions.RayError, TimeoutError):
            await asyncio.wait_for(self._engine.stop.remote(DRAIN_S), DRAIN_S + 2.0)
