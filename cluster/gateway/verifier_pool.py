"""The links of one gateway: one a verifier, opened when first needed, dropped when lost."""

from __future__ import annotations

import asyncio

from cluster.gateway.verifier_link import LinkSettings, VerifierAddress, VerifierLink
from pilotfish.v1 import exchange_pb2 as pb


class LinkPool:
    """Event-loop only. Requests that need the same new verifier share one connection attempt."""

    def __init__(self, hello: pb.GatewayHello, settings: LinkSettings) -> None:
        self._hello = hello
        self._settings = settings
        self._links: dict[VerifierAddress, asyncio.Task[VerifierLink]] = {}

    def __len__(self) -> int:
        return len(self._links)

    async def get(self, address: VerifierAddress) -> VerifierLink:
        """A link that is up; raises LinkLost. A caller that leaves disturbs no other."""
        task = self._links.get(address)
        if task is None or _is_down(task):
            task = asyncio.create_task(self._connect(address))
            task.add_done_callback(_retrieve)
            self._links[address] = task
            self._forget_lost()
        return await asyncio.shield(task)

    def live(self) -> list[VerifierLink]:
        """The links that are up now."""
        return [
            task.result() for task in self._links.values() if task.done() and not _is_down(task)
        ]

    async def close(self) -> None:
        tasks, self._links = list(self._links.values()), {}
        for task in tasks:
            if not task.done():
                task.cancel()
        for link in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(link, VerifierLink):
                await link.close()

    async def _connect(self, address: VerifierAddress) -> VerifierLink:
        link = VerifierLink(address, self._hello, self._settings)
        await link.connect()
        return link

    def _forget_lost(self) -> None:
        """Replicas come and go under new names; the table must not grow with them."""
        self._links = {a: task for a, task in self._links.items() if not _is_down(task)}


def _is_down(task: asyncio.Task[VerifierLink]) -> bool:
    if not task.done():
        return False
    return task.cancelled() or task.exception() is not None or not task.result().up


def _retrieve(task: asyncio.Task[VerifierLink]) -> None:
    """A failed attempt may have no waiter left; its error is then nobody's."""
    if not task.cancelled():
        task.exception()
