"""Where the chunks of one attempt wait for their reader, and what ends an attempt."""

from __future__ import annotations

import asyncio
from collections import deque

from pilotfish.v1 import exchange_pb2 as pb

_SPARE_CHUNKS = 8  # chunks without tokens, such as an error or a bare finish


class LinkLost(Exception):
    """The stream to a verifier is gone, or never came up; str() says why."""


class Inbox:
    """Chunks of one attempt, in order. A reader that pauses holds up nobody else.

    Bounded by `budget`, the tokens the request may still get: a verifier that writes more
    breaks its contract, and the attempt ends as lost.
    """

    __slots__ = ("_chunks", "_empties", "_lost", "_ready", "_tokens")

    def __init__(self, budget: int) -> None:
        self._chunks: deque[pb.TokenChunk] = deque()
        self._lost: LinkLost | None = None
        self._ready = asyncio.Event()
        self._tokens = budget
        self._empties = _SPARE_CHUNKS

    def put(self, chunk: pb.TokenChunk) -> bool:
        """False when the chunk exceeds the budget; the inbox is then failed."""
        self._tokens -= len(chunk.tokens)
        self._empties -= not chunk.tokens
        if self._tokens < 0 or self._empties < 0:
            self.fail(LinkLost("the verifier sent more than the request may get"))
            return False
        self._chunks.append(chunk)
        self._ready.set()
        return True

    def fail(self, lost: LinkLost) -> None:
        """Whatever has arrived is still read first: it is committed."""
        self._lost = self._lost or lost
        self._ready.set()

    async def get(self) -> pb.TokenChunk:
        """The next chunk; raises LinkLost when the attempt is over without a finish."""
        while not self._chunks:
            if self._lost is not None:
                raise self._lost
            self._ready.clear()
            await self._ready.wait()
        return self._chunks.popleft()


def ends(chunk: pb.TokenChunk) -> bool:
    """Whether no chunk of this attempt follows."""
    return chunk.finish != pb.FINISH_UNSPECIFIED or chunk.HasField("error")
