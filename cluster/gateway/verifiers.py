"""`Backend` over gRPC: every request runs on some verifier, and survives the loss of it.

Law: the chunks of one request are those a single verifier would have sent. What was yielded is
exactly `output_ids`; a takeover resubmits it with the same sampling and seed, before the first
token as well as after, so nothing is lost and nothing doubled.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import AsyncGenerator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
)
from typing import Protocol

from actors.exchange.compat import PROTOCOL
from cluster.gateway.errors import GatewayError, NoVerifier, Overloaded
from cluster.gateway.types import BackendHealth, Chunk, GenerateSpec, ModelInfo
from cluster.gateway.verifier_inbox import Inbox, LinkLost
from cluster.gateway.verifier_link import LinkSettings, VerifierAddress, VerifierLink
from cluster.gateway.verifier_pool import LinkPool
from cluster.gateway.verifier_takeover import Loss, Takeover
from cluster.gateway.verifier_wire import chunk_of, drafters_of, error_of, model_info_of, submit_of
from pilotfish.v1 import exchange_pb2 as pb

logger = logging.getLogger(__name__)
_REROUTE_S = 1.0  # how long a router may look for a verifier that is not excluded


class NoRoute(Exception):
    """Raised by a Router: no verifier outside `exclude` can be offered."""


class Router(Protocol):
    """Chooses verifiers. May raise NoRoute, or Overloaded when all are at their limit; may wait,
    and is then cancelled in time."""

    def choose(
        self, request_id: str, exclude: frozenset[str]
    ) -> AbstractAsyncContextManager[VerifierAddress]:
        """Reserves a slot of the verifier until the context exits: the request has ended there."""
        ...


class _Lost(Exception):
    def __init__(self, loss: Loss) -> None:
        super().__init__(loss.reason)
        self.loss = loss


class VerifierBackend:
    """Implements `cluster.gateway.types.Backend`; one event loop.

    tokenizer_digest: of the gateway's tokenizer; a verifier with another one is refused.
    takeover_timeout_s: how long a request waits for a verifier without getting a token.
    """

    def __init__(
        self,
        router: Router,
        *,
        gateway: str,
        tokenizer_digest: str,
        takeover_timeout_s: float = 60.0,
        settings: LinkSettings | None = None,
    ) -> None:
        self._router = router
        self._patience_s = takeover_timeout_s
        self._settings = settings or LinkSettings()
        hello = pb.GatewayHello(protocol=PROTOCOL, gateway=gateway, tokenizer=tokenizer_digest)
        self._pool = LinkPool(hello, self._settings)
        self._attempts = itertools.count(1)

    def links(self) -> list[VerifierLink]:
        """The verifiers this gateway is connected to now."""
        return self._pool.live()

    async def close(self) -> None:
        await self._pool.close()

    async def info(self) -> ModelInfo:
        """The model as a live verifier describes it; raises NoVerifier when none answers."""
        for link in self._pool.live():
            return model_info_of(link.info)
        try:
            async with AsyncExitStack() as stack:
                link = await self._reach(stack, "", frozenset(), self._settings.connect_timeout_s)
                return model_info_of(link.info)
        except _Lost as lost:
            raise NoVerifier(f"No verifier answers: {lost}") from None

    async def health(self) -> BackendHealth:
        """What the live verifiers say of their drafters; raises NoVerifier when none answers."""
        await self.info()
        answers = await asyncio.gather(*(link.describe() for link in self._pool.live()))
        infos = [info for info in answers if info is not None]
        if not infos:
            raise NoVerifier("No verifier answers.")
        return BackendHealth(len(infos), drafters_of(infos))

    async def generate(self, spec: GenerateSpec) -> AsyncGenerator[Chunk, None]:
        """Chunks until `finish`; closing the iterator early aborts the request at once."""
        clock = asyncio.get_running_loop().time
        takeover = Takeover(self._patience_s, clock() + self._patience_s)
        output: list[int] = []
        while len(output) < spec.sampling.max_tokens:
            try:
                async with self._attempt(spec, output, takeover) as (name, inbox):
                    while True:
                        chunk = await _next(name, inbox)
                        if chunk.tokens:
                            output.extend(chunk.tokens)
                            takeover.progressed(clock())
                        yield chunk
                        if chunk.finish is not None:
                            return
            except _Lost as lost:
                await asyncio.sleep(takeover.lost(lost.loss, clock(), random.random()))
        # Lost between the last token and the word that it was the last.
        yield Chunk((), finish="length")

    @asynccontextmanager
    async def _attempt(
        self, spec: GenerateSpec, output: list[int], takeover: Takeover
    ) -> AsyncGenerator[tuple[str, Inbox], None]:
        """One verifier's try. Ids on the wire are never used twice, so tokens of an attempt that
        was given up cannot be taken for another's."""
        left = takeover.deadline - asyncio.get_running_loop().time()
        limit = min(left, _REROUTE_S) if takeover.excluded else left
        async with AsyncExitStack() as stack:
            link = await self._reach(stack, spec.request_id, frozenset(takeover.excluded), limit)
            wire_id = f"{spec.request_id}~{next(self._attempts)}"
            try:
                inbox = link.submit(submit_of(spec, wire_id, output))
            except LinkLost as error:
                raise _Lost(Loss(link.address.name, str(error))) from None
            try:
                yield link.address.name, inbox
            finally:
                link.release(wire_id)

    async def _reach(
        self, stack: AsyncExitStack, request_id: str, exclude: frozenset[str], limit_s: float
    ) -> VerifierLink:
        """Choose a verifier and connect to it within `limit_s`; raises _Lost."""
        name = ""
        try:
            async with asyncio.timeout(limit_s):
                choice = self._router.choose(request_id, exclude)
                address = await stack.enter_async_context(choice)
                name = address.name
                return await self._pool.get(address)
        except TimeoutError:
            raise _Lost(Loss(name, "no verifier in time")) from None
        except LinkLost as error:
            raise _Lost(Loss(name, str(error))) from None
        except Overloaded as error:
            raise _Lost(Loss("", error.message, overloaded=True)) from None
        except NoRoute as error:
            raise _Lost(Loss("", str(error) or "no verifier is offered")) from None
        except (GatewayError, _Lost):
            raise
        except Exception as error:
            # A router is foreign code (Serve, Ray): whatever it raises, no verifier was offered.
            logger.warning("the router failed", exc_info=True)
            raise _Lost(Loss(name, f"{type(error).__name__}: {error}"[:200])) from error


async def _next(name: str, inbox: Inbox) -> Chunk:
    """The next chunk; raises _Lost for what another verifier may do better, else GatewayError."""
    try:
        message = await inbox.get()
    except LinkLost as error:
        raise _Lost(Loss(name, str(error), admitted=True)) from None
    if message.HasField("error") or message.finish == pb.FINISH_ERROR:
        refused = error_of(message.error)
        if isinstance(refused, Overloaded):
            raise _Lost(Loss(name, refused.message, overloaded=True, limit=refused.limit))
        raise refused
    if message.finish == pb.FINISH_ABORT:
        raise _Lost(Loss(name, f"verifier {name} gave the request up", admitted=True))
    return chunk_of(message)
