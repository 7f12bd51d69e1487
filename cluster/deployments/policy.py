"""The policy actor as a Serve deployment of one replica: messages in, messages out.

Messages cross Serve as serialized protobuf, so both sides can be of different versions.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any

from actors.policy.demand import Demand
from actors.policy.errors import Superseded
from actors.policy.options import PolicyOptions
from actors.policy.service import PolicyService
from actors.policy.state_file import StateFile
from cluster.deployments.waking import serve_waker
from cluster.live_config import as_config, parse_live, patched
from pilotfish.v1 import control_pb2 as pb

SAVE_EVERY_S = 10.0  # what verifiers have learnt; a change of the configuration is saved at once


class Policy:
    """Drafters register here; verifiers exchange load and what they have learnt for snapshots."""

    def __init__(self, options: PolicyOptions) -> None:
        self._options = options
        self._file = StateFile(options.state_path) if options.state_path else None
        self._service = PolicyService(options, state=self._file.load() if self._file else None)
        self._demand = Demand(options.scaled, lease_s=options.lease_s)
        self._waker = serve_waker() if options.scaled else None
        self._saved_s = time.monotonic()
        self._saving = asyncio.Lock()

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """The deployment's configuration (`cluster.live_config`), in place of what is in force.
        Raises ArgumentsError, which `serve status` shows."""
        self._service.deploy(parse_live(user_config, self._options))
        await self._save()

    async def configure(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Change what `changes` names and return the configuration in force. A change outlives
        this process; the next deployment of another user_config replaces it.

        Raises ArgumentsError or Superseded, and has then changed nothing."""
        self._service.configure(patched(self._service.settings, changes, self._options))
        await self._save()
        return as_config(self._service.settings)

    async def configuration(self) -> dict[str, Any]:
        """The configuration in force. Raises Superseded."""
        self._service.check_reign()
        return as_config(self._service.settings)

    async def renew(self, endpoint: bytes) -> bytes:
        """A drafter's registration or renewal: a serialized DrafterEndpoint against its
        DrafterStanding. Raises Superseded."""
        drafter = pb.DrafterEndpoint.FromString(endpoint)
        self._service.renew(drafter)
        return self._demand.renewed(drafter).SerializeToString()

    async def release(self, drafter: str) -> None:
        """A drafter leaves. Raises Superseded."""
        self._service.release(drafter)
        self._demand.released(drafter)

    async def exchange(self, report: bytes, term: int, version: int) -> bytes | None:
        """A verifier's VerifierStatus against a newer PolicySnapshot, both serialized. Raises
        ReportRefused or Superseded."""
        status = pb.VerifierStatus.FromString(report)
        try:
            newer = self._service.exchange(status, term, version)
        except Superseded:
            self._wake(())  # is the other's to do
            raise
        self._demand.heard(status)
        self._wake(self._demand.wakes())
        if time.monotonic() - self._saved_s >= SAVE_EVERY_S:
            await self._save()
        return None if newer is None else newer.SerializeToString()

    async def placement(self) -> dict[str, Any]:
        """Where this replica is."""
        return {"pid": os.getpid()}

    async def status(self) -> bytes:
        """A serialized Status: the snapshot and the verifiers' last reports. Raises Superseded."""
        return self._service.status().SerializeToString()

    def _wake(self, pools: Sequence[str]) -> None:
        if self._waker is not None:
            self._waker.want(pools)

    async def _save(self) -> None:
        """What there is to keep, where there is a place; off the loop, one after another."""
        self._saved_s = time.monotonic()
        if self._file is None:
            return
        async with self._saving:
            try:
                state = self._service.state()
            except Superseded:
                return
            await asyncio.to_thread(self._file.save, state)
