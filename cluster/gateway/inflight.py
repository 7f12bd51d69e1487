"""Request ids in use at this gateway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cluster.gateway.errors import DuplicateRequest


class InFlight:
    """One set for all doors of a gateway: an id names one running request at a time."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._ids)

    @contextmanager
    def claim(self, request_id: str) -> Iterator[None]:
        """Hold the id for the block. Raises `DuplicateRequest` when another request has it."""
        if request_id in self._ids:
            raise DuplicateRequest(
                f"A request with the id {request_id!r} is in flight.", param="request_id"
            )
        self._ids.add(request_id)
        try:
            yield
        finally:
            self._ids.discard(request_id)
