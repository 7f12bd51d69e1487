"""The drafter's gRPC server: `Drafting` of exchange.proto.

A sync server with threads of its own, so it shares no event loop. A handler's thread sends, a
reader's thread decodes, one worker thread owns the drafter.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import grpc

from actors.contracts import Drafter
from actors.exchange.codec import compat_from_pb, info_to_pb
from actors.exchange.compat import Compat, difference
from actors.exchange.limits import MAX_REQUEST_ID, Limits, server_options
from actors.exchange.sink import SpanHook
from actors.exchange.stream import RoundStream
from actors.exchange.threads import DaemonThreads
from actors.exchange.worker import DraftWorker
from pilotfish.v1 import exchange_pb2 as pb
from pilotfish.v1 import exchange_pb2_grpc as pb_grpc

HUNG_AFTER_S = 30.0
"""No call of a drafter takes so long: prompts are fed in parts."""


@dataclass(frozen=True, slots=True)
class DrafterStats:
    """Counts since the start; sessions and streams are those of now."""

    sessions: int
    streams: int
    blocks: int
    frames_received: int
    frames_sent: int
    busy_s: float
    faults: dict[str, int]


class DraftingServer:
    """Serves one drafter. compat: what verifiers must agree with; its taps are the drafter's.
    timings: what the drafter has measured of itself, see `DrafterInfo`.

    on_span is called on a stream's own thread after the frame has gone out.
    """

    def __init__(
        self,
        drafter: Drafter,
        *,
        name: str,
        compat: Compat | None = None,
        limits: Limits | None = None,
        timings: Sequence[tuple[int, int, float]] = (),
        idle_s: float = 60.0,
        on_span: SpanHook | None = None,
        clock: Callable[[], float] = time.monotonic,
        keepalive_ms: int = 10_000,
    ) -> None:
        self.limits = limits or Limits(vocab_size=drafter.info.vocab_size)
        self._worker = DraftWorker(
            drafter, self.limits, idle_s=idle_s, traced=on_span is not None, clock=clock
        )
        self._servicer = DraftingServicer(
            self._worker, name, compat or Compat(), self.limits, on_span, tuple(timings)
        )
        # Two lanes a verifier; what is over the limit is refused at once, not queued.
        threads = self.limits.max_streams + 2
        self._server = grpc.server(
            DaemonThreads("drafting"),  # type: ignore[arg-type]  # of it gRPC uses submit() alone
            options=server_options(keepalive_ms),
            maximum_concurrent_rpcs=threads,
        )
        pb_grpc.add_DraftingServicer_to_server(self._servicer, self._server)

    def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Bind and serve; returns the port. Raises OSError when the port is taken."""
        try:
            bound = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(f"cannot bind {host}:{port}: {error}") from error
        if not bound:
            raise OSError(f"cannot bind {host}:{port}")
        self._worker.start()
        self._server.start()
        return bound

    def stop(self, grace_s: float = 1.0) -> None:
        """End every stream, so that verifiers move their sessions, then the drafter's thread."""
        self._servicer.close()
        self._server.stop(grace_s).wait()
        self._worker.stop(max(grace_s, 0.1))

    def alive(self, within_s: float = HUNG_AFTER_S) -> bool:
        """Whether drafts are still made: the server may answer pings without. Cheap."""
        return self._worker.alive(within_s)

    def stats(self) -> DrafterStats:
        return DrafterStats(
            sessions=self._worker.sessions,
            streams=self._servicer.streams,
            blocks=self._worker.blocks,
            frames_received=self._servicer.frames_received,
            frames_sent=self._servicer.frames_sent,
            busy_s=self._worker.busy_ns / 1e9,
            faults=dict(self._worker.faults),
        )


class DraftingServicer:
    """Hello first, then frames. The newest round lane of a verifier replaces the one before."""

    def __init__(
        self,
        worker: DraftWorker,
        name: str,
        compat: Compat,
        limits: Limits,
        on_span: SpanHook | None = None,
        timings: tuple[tuple[int, int, float], ...] = (),
    ) -> None:
        self._worker = worker
        self._name = name
        self._limits = limits
        self._on_span = on_span
        info = worker.info
        self._described = info_to_pb(replace(info, timings=timings), limits.max_sessions)
        self._compat = Compat(
            compat.target, compat.tokenizer, compat.drafter, info.taps, compat.rule, info.projection
        )
        self._streams: dict[str, RoundStream] = {}
        self._lock = threading.Lock()
        self._closing = False
        self.frames_received = 0
        self.frames_sent = 0

    @property
    def streams(self) -> int:
        return len(self._streams)

    def close(self) -> None:
        self._closing = True
        with self._lock:
            streams = list(self._streams.values())
        for stream in streams:
            stream.close()

    def Describe(
        self, request: pb.DescribeRequest, context: grpc.ServicerContext
    ) -> pb.DrafterInfo:
        return self._described

    def Exchange(
        self, request_iterator: Iterator[pb.VerifierFrame], context: grpc.ServicerContext
    ) -> Iterator[pb.DrafterFrame]:
        first = next(request_iterator, None)
        refusal = self._refusal(first)
        if refusal or first is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal)
            return
        welcome = pb.DrafterFrame(
            welcome=pb.Welcome(
                drafter=self._name,
                pid=os.getpid(),
                info=self._described,
            )
        )
        if first.hello.lane == pb.LANE_BULK:
            yield from self._bulk(first.hello, request_iterator, context, welcome)
        else:
            yield from self._rounds(first.hello, request_iterator, context, welcome)

    def _rounds(
        self,
        hello: pb.Hello,
        frames: Iterator[pb.VerifierFrame],
        context: grpc.ServicerContext,
        welcome: pb.DrafterFrame,
    ) -> Iterator[pb.DrafterFrame]:
        stream = RoundStream(hello.verifier, hello.boot_epoch, self._worker, self._limits)
        self._register(stream)
        # The callback fires at once on a cancel, where this generator would see it at a yield.
        if not context.add_callback(lambda: self._end(stream)):
            self._end(stream)
            return
        reader = threading.Thread(
            target=stream.read, args=(self._counted(frames),), name="draft-reader", daemon=True
        )
        reader.start()
        try:
            yield welcome
            for frame, spans in stream.frames():
                self.frames_sent += 1
                yield frame
                if self._on_span is not None:
                    for span in spans:
                        self._on_span(
                            span.trace, "draft", span.start_ns, span.end_ns, span.attributes
                        )
        finally:
            self._end(stream)

    def _bulk(
        self,
        hello: pb.Hello,
        frames: Iterator[pb.VerifierFrame],
        context: grpc.ServicerContext,
        welcome: pb.DrafterFrame,
    ) -> Iterator[pb.DrafterFrame]:
        """Features for the sessions of the round lane; ends with it."""
        with self._lock:
            stream = self._streams.get(hello.verifier)
        if stream is None or stream.boot_epoch != hello.boot_epoch:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "lane: the round lane is not open")
            return
        if not stream.attach(context.cancel):
            return
        yield welcome
        try:
            for frame in self._counted(frames):
                stream.take_features(frame)
        except Exception:
            if context.is_active() and not stream.closed:
                raise

    def _counted(self, frames: Iterator[pb.VerifierFrame]) -> Iterator[pb.VerifierFrame]:
        for frame in frames:
            self.frames_received += 1
            yield frame

    def _register(self, stream: RoundStream) -> None:
        with self._lock:
            old = self._streams.get(stream.verifier)
            self._streams[stream.verifier] = stream
        if old is not None:
            old.close()

    def _end(self, stream: RoundStream) -> None:
        stream.close()
        with self._lock:
            if self._streams.get(stream.verifier) is stream:
                del self._streams[stream.verifier]

    def _refusal(self, first: pb.VerifierFrame | None) -> str:
        """Why this stream cannot be; it begins with the name of the field. Empty: it can."""
        if self._closing:
            return "drafter: it is shutting down"
        if first is None or not first.HasField("hello"):
            return "hello: the first frame must bring it"
        hello = first.hello
        found = difference(
            hello.protocol,
            compat_from_pb(hello.compat),
            self._compat,
            needs_features=self._worker.info.needs_features,
        )
        if found is not None:
            return f"{found[0]}: {found[1]}"
        if not 0 < len(hello.verifier) <= MAX_REQUEST_ID:
            return f"verifier: must have 1 to {MAX_REQUEST_ID} characters"
        if hello.lane not in (pb.LANE_ROUND, pb.LANE_BULK):
            return "lane: must be the round or the bulk lane"
        with self._lock:
            current = self._streams.get(hello.verifier)
        if current is not None and current.boot_epoch > hello.boot_epoch:
            return "boot_epoch: a younger process of this verifier is connected"
        return ""
