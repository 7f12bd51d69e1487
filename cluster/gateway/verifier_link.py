"""One multiplexed stream between this gateway and one verifier (`Verification.Serve`).

A supervisor runs three parts: a writer that coalesces whatever is pending into one frame, a reader
that sorts chunks into inboxes, and a heartbeat. The first part to end takes the link down, every
inbox learns of it at once, and nothing of the link is left.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

import grpc
import grpc.aio

from cluster.gateway.verifier_inbox import Inbox, LinkLost, ends
from pilotfish.v1 import exchange_pb2 as pb
from pilotfish.v1.exchange_pb2_grpc import VerificationStub

logger = logging.getLogger(__name__)
_ABORTS_PER_FRAME = 4096  # half a frame of the longest ids
_FIELD_BYTES = 8  # at most this much frames a submit: its tag and its length
VERIFICATION = cast("Callable[[grpc.aio.Channel], VerificationStub]", VerificationStub)
_Call: TypeAlias = "grpc.aio.StreamStreamCall[pb.GatewayFrame, pb.TokenFrame]"


@dataclass(frozen=True, slots=True)
class VerifierAddress:
    """A verifier replica: a name no other replica ever has, and "host:port"."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Times in seconds, sizes in bytes.

    A link is lost after `missed_pings` intervals without a frame. Intervals are counted rather
    than time compared, so a pause of this process alone never looks like a silent verifier.
    """

    connect_timeout_s: float = 5.0
    ping_interval_s: float = 2.0
    missed_pings: int = 4
    max_frame_bytes: int = 1 << 20
    max_receive_bytes: int = 8 << 20

    def channel_options(self) -> list[tuple[str, int]]:
        """One connection attempt a link; never through a proxy from the environment."""
        return [
            ("grpc.max_receive_message_length", self.max_receive_bytes),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ]


class VerifierLink:
    """The gateway's end of one stream; event-loop only. `await connect()` once, before use."""

    def __init__(
        self, address: VerifierAddress, hello: pb.GatewayHello, settings: LinkSettings
    ) -> None:
        self.address = address
        self.info = pb.VerifierInfo()
        self.rtt_s = 0.0
        self._hello = hello
        self._settings = settings
        self._inboxes: dict[str, Inbox] = {}
        self._submits: dict[str, pb.Submit] = {}
        self._aborts: list[str] = []
        self._ping_due = False
        self._wake = asyncio.Event()
        self._heard = False
        self._up = False
        self._channel = grpc.aio.insecure_channel(
            address.address, options=settings.channel_options()
        )
        self._stub = VERIFICATION(self._channel)
        self._call: _Call = self._stub.Serve()
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        return self._up

    @property
    def requests(self) -> int:
        """Attempts in flight on this link."""
        return len(self._inboxes)

    async def connect(self) -> None:
        """Say hello and wait for the welcome; raises LinkLost with the verifier's reason."""
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                await self._call.write(pb.GatewayFrame(hello=self._hello))
                first = await self._call.read()
            if not isinstance(first, pb.TokenFrame) or not first.HasField("welcome"):
                raise self._lost("it sent no welcome")
        except BaseException as error:
            self._call.cancel()
            await self._channel.close(None)
            if isinstance(error, TimeoutError):
                raise self._lost("no welcome in time") from None
            if isinstance(error, (grpc.RpcError, asyncio.InvalidStateError)):
                raise self._lost(_words(error)) from None
            raise
        self.info = first.welcome
        self._up = True
        self._supervisor = asyncio.create_task(self._supervise(), name=f"link {self.address.name}")

    def submit(self, submit: pb.Submit) -> Inbox:
        """Queue a request; its chunks arrive in the inbox. Raises LinkLost when down."""
        if not self._up:
            raise self._lost("the stream has ended")
        inbox = Inbox(submit.sampling.max_tokens - len(submit.output_ids))
        self._inboxes[submit.request_id] = inbox
        self._submits[submit.request_id] = submit
        self._wake.set()
        return inbox

    def release(self, request_id: str) -> None:
        """The reader is gone: abort at once, unless the request has finished. Never waits."""
        inbox = self._inboxes.pop(request_id, None)
        if inbox is None or not self._up:
            return
        if self._submits.pop(request_id, None) is None:
            self._aborts.append(request_id)
            self._wake.set()

    async def describe(self) -> pb.VerifierInfo | None:
        """Fresh facts, drafters included; None when the verifier does not answer in time."""
        timeout = self._settings.connect_timeout_s
        try:
            info: pb.VerifierInfo = await self._stub.Describe(pb.DescribeRequest(), timeout=timeout)
        except (grpc.RpcError, grpc.aio.UsageError):
            return None
        except asyncio.CancelledError:
            # The link closing under the call looks like a cancellation of the caller.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return None
        return info

    async def close(self) -> None:
        """End the stream; the verifier then aborts whatever was submitted on it."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)

    # -- parts ------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        parts = [asyncio.create_task(part) for part in (self._read(), self._write(), self._beat())]
        reason = "the gateway closed it"
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            reason = _outcome(next(iter(done)))
            logger.warning("lost verifier %s: %s", self.address.name, reason)
        finally:
            self._down(reason)
            for part in parts:
                part.cancel()
            self._call.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            await self._channel.close(None)

    def _down(self, reason: str) -> None:
        self._up = False
        lost = self._lost(reason)
        for inbox in self._inboxes.values():
            inbox.fail(lost)
        self._inboxes.clear()
        self._submits.clear()
        self._aborts.clear()

    def _lost(self, reason: str) -> LinkLost:
        return LinkLost(f"verifier {self.address.name} at {self.address.address}: {reason}")

    async def _read(self) -> str:
        while True:
            frame = await self._call.read()
            if not isinstance(frame, pb.TokenFrame):
                return "the verifier ended it"
            self._heard = True
            if frame.pong_ns:
                self.rtt_s = max(0, time.monotonic_ns() - frame.pong_ns) / 1e9
            for chunk in frame.chunks:
                self._deliver(chunk)

    def _deliver(self, chunk: pb.TokenChunk) -> None:
        """Chunks of a request that was released are dropped: its tokens have no reader."""
        inbox = self._inboxes.get(chunk.request_id)
        if inbox is None:
            return
        if not inbox.put(chunk):
            self.release(chunk.request_id)
        elif ends(chunk):  # so that nothing aborts it
            del self._inboxes[chunk.request_id]

    async def _write(self) -> str:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._submits or self._aborts or self._ping_due:
                await self._call.write(self._next_frame())

    def _next_frame(self) -> pb.GatewayFrame:
        """Everything pending, up to the frame's limit; one larger submit travels alone."""
        frame = pb.GatewayFrame()
        if self._ping_due:
            self._ping_due = False
            frame.ping_ns = time.monotonic_ns()
        frame.aborts.extend(self._aborts[:_ABORTS_PER_FRAME])
        del self._aborts[:_ABORTS_PER_FRAME]
        room = self._settings.max_frame_bytes - frame.ByteSize()
        while self._submits:
            request_id, submit = next(iter(self._submits.items()))
            room -= submit.ByteSize() + _FIELD_BYTES
            if room < 0 and (frame.submits or frame.aborts):
                break
            del self._submits[request_id]
            frame.submits.append(submit)
        return frame

    async def _beat(self) -> str:
        silent = 0
        while silent < self._settings.missed_pings:
            self._heard = False
            self._ping_due = True
            self._wake.set()
            await asyncio.sleep(self._settings.ping_interval_s)
            silent = 0 if self._heard else silent + 1
        return f"it was silent for {silent * self._settings.ping_interval_s:g} s"


def _outcome(part: asyncio.Task[str]) -> str:
    """Why a part ended; the parts return their reason or raise it."""
    if part.cancelled():
        return "the stream was cancelled"
    error = part.exception()
    return part.result() if error is None else _words(error)


def _words(error: BaseException) -> str:
    """The peer's own words where the error carries a status."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details() or 'no details'}"
    return str(error) or type(error).__name__
