"""The policy actor as a Serve deployment of one replica: messages in, messages out.

Messages cross Serve as serialized protobuf, so both sides can be of different versions.
"""

from __future__ import annotations

import os
from typing import Any

from actors.policy.service import PolicyOptions, PolicyService
from pilotfish.v1 import control_pb2 as pb

_DEPTH_KEY = "num_speculative_tokens"


class Policy:
    """Drafters register here; verifiers exchange load for snapshots."""

    def __init__(self, options: PolicyOptions) -> None:
        self._service = PolicyService(options)

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """`user_config: {num_speculative_tokens: D}` changes D while serving."""
        unknown = sorted(set(user_config) - {_DEPTH_KEY})
        if unknown:
            raise ValueError(f"user_config: unknown key {unknown[0]!r}; known: {_DEPTH_KEY}")
        if _DEPTH_KEY in user_config:
            self._service.configure(int(user_config[_DEPTH_KEY]))

    async def renew(self, endpoint: bytes) -> None:
        """A drafter's registration or renewal: a serialized DrafterEndpoint."""
        self._service.renew(pb.DrafterEndpoint.FromString(endpoint))

    async def release(self, drafter: str) -> None:
        """A drafter leaves."""
        self._service.release(drafter)

    async def exchange(self, report: bytes, term: int, version: int) -> bytes | None:
        """A verifier's VerifierStatus against a newer PolicySnapshot, both serialized."""
        newer = self._service.exchange(pb.VerifierStatus.FromString(report), term, version)
        return None if newer is None else newer.SerializeToString()

    async def placement(self) -> dict[str, Any]:
        """Where this replica is."""
        return {"pid": os.getpid()}

    async def status(self) -> bytes:
        """A serialized Status: the snapshot and the verifiers' last reports."""
        return self._service.status().SerializeToString()
