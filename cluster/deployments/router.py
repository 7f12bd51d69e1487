"""The gateway's way to verifiers: Serve chooses, and holds a slot while the request runs.

Serve keeps the account (load, draining, replicas that come and go); tokens go over gRPC.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentHandle

from cluster.gateway.errors import Overloaded
from cluster.gateway.verifier_link import VerifierAddress

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.25


class ServeRouter:
    """Implements `cluster.gateway.verifiers.Router` over a handle of the verifiers."""

    def __init__(self, verifiers: DeploymentHandle[Any]) -> None:
        self._verifiers = verifiers

    @asynccontextmanager
    async def choose(
        self, request_id: str, exclude: frozenset[str]
    ) -> AsyncGenerator[VerifierAddress, None]:
        """A verifier outside `exclude`; Serve may go on offering a dead one for a second, so this
        asks again until it is cancelled. Raises Overloaded when every slot is taken."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                async with self._verifiers.choose_replica() as selection:
                    address = _address_of(selection.replica_metadata or {})
                    if address is not None and address.name not in exclude:
                        yield address
                        return
            except BackPressureError as error:
                raise Overloaded(str(error), retry_after_s=1.0) from error
            await asyncio.sleep(pause_s)
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)


def _address_of(metadata: dict[str, Any]) -> VerifierAddress | None:
    """A replica that has not told its address yet is not ready."""
    if "verifier" not in metadata or "data_addr" not in metadata:
        return None
    return VerifierAddress(str(metadata["verifier"]), str(metadata["data_addr"]))
