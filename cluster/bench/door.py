"""A running server as the benchmark's door: requests over gRPC, counters over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

import httpx

from cluster.bench.dataset import Prompt
from cluster.bench.errors import BenchError
from cluster.bench.positions import Counts, parse
from cluster.bench.servers import Server
from cluster.sighting import Sighting, sighting
from pilotfish import AsyncClient, Delta, GenerateOptions


class ServerDoor:
    """An `attempt.Door`. Nothing is retried: a refused request is a figure too."""

    def __init__(self, server: Server, api_key: str | None, timeout_s: float) -> None:
        self._server = server
        self._client = AsyncClient(server.grpc, api_key=api_key, timeout=timeout_s, retries=0)
        self._http = httpx.AsyncClient(timeout=30.0)

    def stream(
        self, prompt: Prompt, options: GenerateOptions
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]:
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        return self._client.stream(messages=messages, **options)

    async def sight(self) -> Sighting:
        return sighting(await self._client.status())

    async def positions(self) -> Counts:
        """Empty for an attached server whose HTTP address was not given. Raises BenchError when
        the one that was given does not answer."""
        if self._server.http is None:
            return {}
        url = f"{self._server.http.rstrip('/')}/metrics"
        try:
            answer = await self._http.get(url)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise BenchError(f"{url} does not answer: {error or type(error).__name__}") from None
        return parse(answer.text)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.close()
        await self._http.aclose()
