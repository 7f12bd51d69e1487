"""The verifier's gRPC door for gateways: `Verification` of exchange.proto.

One stream a gateway. A reader thread turns frames into engine commands; the handler's own thread
turns events into frames. When the stream ends, for whatever reason, its requests are dropped.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator

import grpc
from typing_extensions import override

from actors.engine.errors import InvalidRequest
from actors.engine.events import TokenEvent
from actors.engine.frames import chunk_of, request_of
from actors.engine.options import SpanSink
from actors.engine.spans import emit_spans
from actors.engine.thread import EngineThread, Outbox
from actors.exchange.compat import PROTOCOL
from pilotfish.v1 import exchange_pb2 as pb
from pilotfish.v1 import exchange_pb2_grpc as pb_grpc

CHUNKS_PER_FRAME = 256  # keeps a frame under 1 MiB, log-probabilities included
IDLE_S = 30.0  # a gateway pings every few seconds; a silent one is gone
_TICK_S = 5.0


class VerificationServicer(pb_grpc.VerificationServicer):
    """Serves one engine. describe: fresh facts for the welcome and for Describe."""

    def __init__(
        self,
        engine: EngineThread,
        describe: Callable[[], pb.VerifierInfo],
        span_sink: SpanSink | None = None,
    ) -> None:
        self._engine = engine
        self._describe = describe
        self._span_sink = span_sink
        self._streams = itertools.count()

    @override
    def Describe(
        self, request: pb.DescribeRequest, context: grpc.ServicerContext
    ) -> pb.VerifierInfo:
        return self._describe()

    @override
    def Serve(
        self, request_iterator: Iterator[pb.GatewayFrame], context: grpc.ServicerContext
    ) -> Iterator[pb.TokenFrame]:
        info = self._describe()
        self._greet(next(request_iterator, None), info, context)
        stream = _Stream(f"{next(self._streams)}", self._engine)
        if not stream.connected:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the engine has ended")
        context.add_callback(stream.close)
        threading.Thread(
            target=stream.read, args=(request_iterator,), name="gateway-reader", daemon=True
        ).start()
        try:
            yield pb.TokenFrame(welcome=info)
            for frame, events in stream.frames():
                yield frame
                if self._span_sink is not None:
                    emit_spans(events, self._span_sink)
        finally:
            stream.close()

    def _greet(
        self, first: pb.GatewayFrame | None, info: pb.VerifierInfo, context: grpc.ServicerContext
    ) -> None:
        """Refuse a stream that cannot work, by the first field that differs."""
        if first is None or not first.HasField("hello"):
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "hello: the first frame must bring it"
            )
            return
        hello = first.hello
        if hello.protocol != PROTOCOL:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"protocol: this verifier speaks {PROTOCOL}, the gateway {hello.protocol}",
            )
        if hello.tokenizer and info.tokenizer and hello.tokenizer != info.tokenizer:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                "tokenizer: the gateway's vocabulary is not this verifier's",
            )


class _Stream:
    """One gateway's stream. Request ids are prefixed, so gateways never meet in the engine."""

    def __init__(self, name: str, engine: EngineThread) -> None:
        self._prefix = f"{name}:"
        self._engine = engine
        self._outbox = Outbox()
        self._pongs: list[int] = []
        self._heard = time.monotonic()
        self._closed = False
        self.connected = engine.connect(self._outbox)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._outbox.close()
            self._engine.disown(self._outbox)

    def read(self, frames: Iterator[pb.GatewayFrame]) -> None:
        """The reader thread. A bad submit is answered on its own; the stream goes on."""
        try:
            for frame in frames:
                self._heard = time.monotonic()
                for submit in frame.submits:
                    self._submit(submit)
                for request_id in frame.aborts:
                    self._engine.abort(self._prefix + request_id, self._outbox)
                if frame.ping_ns:
                    self._pongs.append(frame.ping_ns)
                    self._outbox.put([])
        except grpc.RpcError:
            pass
        except Exception:
            # grpc raises a bare Exception from the request iterator when the stream breaks.
            if not self._closed:
                self.close()
            return
        self.close()

    def _submit(self, submit: pb.Submit) -> None:
        try:
            request = request_of(submit, self._prefix)
        except InvalidRequest as error:
            refused = TokenEvent(self._prefix + submit.request_id, finish="error", error=error)
            self._outbox.put([refused])
            return
        self._engine.add(request, self._outbox)

    def frames(self) -> Iterator[tuple[pb.TokenFrame, list[TokenEvent]]]:
        """Frames to send with the events they carry, until the stream ends."""
        cut = len(self._prefix)
        while (events := self._outbox.take(_TICK_S)) is not None:
            pongs, self._pongs = self._pongs, []
            if not events and not pongs:
                if time.monotonic() - self._heard > IDLE_S:
                    return
                continue
            for start in range(0, max(1, len(events)), CHUNKS_PER_FRAME):
                part = events[start : start + CHUNKS_PER_FRAME]
                frame = pb.TokenFrame(chunks=[chunk_of(event, cut) for event in part])
                if pongs:
                    frame.pong_ns = pongs[-1]
                yield frame, part
