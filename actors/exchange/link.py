"""One drafter from the verifier's side: two lanes, threads of its own, reconnection.

The engine's thread only puts records into `Outgoing`. What comes back is handed to a listener on
the link's receiving thread.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import grpc

from actors.contracts import Commit, DrafterInfo, OpenSession, SessionKey
from actors.exchange.codec import compat_to_pb, info_from_pb
from actors.exchange.compat import PROTOCOL, Compat
from actors.exchange.form import FeatureForm
from actors.exchange.limits import MAX_DETAIL, channel_options
from actors.exchange.outgoing import Outgoing
from actors.exchange.sink import Trace
from pilotfish.v1 import exchange_pb2 as pb
from pilotfish.v1 import exchange_pb2_grpc as pb_grpc
from policies.retry import pause_s

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

_RETRY_FIRST_S = 0.1
_RETRY_LONGEST_S = 5.0
_REFUSED_S = 10.0
_RTTS = 64


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A drafter's place, as the policy publishes it. max_sessions 0: the drafter says itself.
    draining: it is to go; its sessions move with their next commits."""

    name: str
    address: str
    mechanism: str = ""
    max_sessions: int = 0
    pid: int = 0
    draining: bool = False


class Listener(Protocol):
    """Called on the link's receiving thread; must not block."""

    def on_up(self, link: Link) -> None: ...

    def on_frame(self, link: Link, frame: pb.DrafterFrame) -> None: ...

    def on_down(self, link: Link) -> None: ...


class Link:
    """Starts down; `start` connects and reconnects until `close`."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        verifier: str,
        boot_epoch: int,
        compat: Compat,
        listener: Listener,
        keepalive_ms: int = 10_000,
        form: FeatureForm | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.info: DrafterInfo | None = None
        self.max_sessions = endpoint.max_sessions
        self.pid = endpoint.pid
        self.up = False
        self.state = "connecting"
        self.detail = ""
        self.busy_share = 0.0
        self.frames_sent = 0
        self.frames_received = 0
        self._hello = pb.Hello(
            protocol=PROTOCOL,
            verifier=verifier,
            boot_epoch=boot_epoch,
            lane=pb.LANE_ROUND,
            compat=compat_to_pb(compat),
        )
        self._listener = listener
        self._keepalive_ms = keepalive_ms
        self._form = form or FeatureForm()
        self._out = Outgoing(self._form)
        self._calls: list[Any] = []
        self._rtts_ns: deque[int] = deque(maxlen=_RTTS)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"link-{endpoint.name}", daemon=True)

    # -- the owner's thread -----------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the stream, and with it every session on the drafter. Does not wait."""
        self._closing.set()
        self._out.end()
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.cancel()

    def join(self, timeout_s: float) -> None:
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def open(self, session: OpenSession, *, follow: bool, trace: Trace) -> None:
        self._out.open(session, follow=follow, trace=trace)

    def features(self, key: SessionKey, rows: torch.Tensor, from_row: int = 0) -> None:
        self._out.features(key, rows, from_row)

    def commit(self, commits: Sequence[Commit]) -> None:
        self._out.commit(commits)

    def close_session(self, key: SessionKey, reason: str) -> None:
        self._out.close(key, reason)

    @property
    def feature_bytes(self) -> int:
        return self._out.feature_bytes

    def coldest(self) -> SessionKey | None:
        return self._out.coldest()

    @property
    def rtt_us(self) -> int:
        """Median of recent pings, 0 before the first."""
        recent = sorted(self._rtts_ns)
        return recent[len(recent) // 2] // 1000 if recent else 0

    # -- the receiving thread ---------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while not self._closing.is_set():
            try:
                self._connect()
                refused, self.detail = False, "the drafter ended the stream"
            except grpc.RpcError as error:
                refused = _code(error) is grpc.StatusCode.FAILED_PRECONDITION
                self.detail = _details(error)
            except Exception as error:
                log.exception("the link to %s failed and starts anew", self.endpoint.name)
                refused, self.detail = False, f"{type(error).__name__}: {error}"[:MAX_DETAIL]
            was_up, self.up = self.up, False
            self.state = "refused" if refused else "down"
            self._out.end()
            if was_up:
                failures = 0
                self._listener.on_down(self)
            failures += 1
            rest_s = _REFUSED_S if refused else pause_s(failures, _RETRY_FIRST_S, _RETRY_LONGEST_S)
            self._closing.wait(rest_s * random.uniform(0.75, 1.25))
        self.state = "down"

    def _connect(self) -> None:
        """One connection, from Hello to its end; raises grpc.RpcError when it breaks."""
        self._out = out = Outgoing(self._form)
        if self._closing.is_set():
            return
        with grpc.insecure_channel(
            self.endpoint.address, options=channel_options(self._keepalive_ms)
        ) as channel:
            call = self._call(channel, self._rounds(out))
            try:
                for frame in call:
                    self.frames_received += 1
                    self._take(frame, out)
            finally:
                out.end()
                self._forget(call)

    def _take(self, frame: pb.DrafterFrame, out: Outgoing) -> None:
        if frame.HasField("welcome"):
            self._welcome(frame.welcome, out)
        if frame.pong_ns:
            self._rtts_ns.append(out.pong(frame.pong_ns))
        if frame.HasField("load"):
            self.busy_share = frame.load.busy_share
        if frame.blocks or frame.faults:
            self._listener.on_frame(self, frame)

    def _welcome(self, welcome: pb.Welcome, out: Outgoing) -> None:
        self.info = info_from_pb(welcome.info)
        self.max_sessions = welcome.info.max_sessions or self.endpoint.max_sessions
        self.pid = welcome.pid
        if self.info.needs_features:
            threading.Thread(
                target=self._run_bulk, args=(out,), name=f"bulk-{self.endpoint.name}", daemon=True
            ).start()
        self.up, self.state, self.detail = True, "up", ""
        self._listener.on_up(self)

    def _rounds(self, out: Outgoing) -> Iterator[pb.VerifierFrame]:
        yield pb.VerifierFrame(hello=self._hello)
        for frame in out.round_frames():
            self.frames_sent += 1
            yield frame
        if not self._closing.is_set():
            # The peer reads nothing any more; without this the call would stay half open.
            self._cancel()

    # -- the bulk lane ----------------------------------------------------------------------

    def _run_bulk(self, out: Outgoing) -> None:
        """A channel of its own, so that its chunks do not stand before a round's frame. When it
        breaks, the whole link starts anew: features would be missing."""
        hello = pb.Hello()
        hello.CopyFrom(self._hello)
        hello.lane = pb.LANE_BULK
        options = channel_options(self._keepalive_ms)
        with grpc.insecure_channel(self.endpoint.address, options=options) as channel:
            call = self._call(channel, self._bulk(hello, out))
            try:
                for _ in call:
                    self.frames_received += 1
            except grpc.RpcError as error:
                if not out.ended:
                    self.detail = _details(error)
            finally:
                self._forget(call)
        if not out.ended:
            self._cancel()

    def _bulk(self, hello: pb.Hello, out: Outgoing) -> Iterator[pb.VerifierFrame]:
        yield pb.VerifierFrame(hello=hello)
        for frame in out.bulk_frames():
            self.frames_sent += 1
            yield frame

    # -- calls ------------------------------------------------------------------------------

    def _call(self, channel: grpc.Channel, frames: Iterator[pb.VerifierFrame]) -> Any:
        call = pb_grpc.DraftingStub(channel).Exchange(frames)
        with self._lock:
            self._calls.append(call)
        if self._closing.is_set():
            call.cancel()
        return call

    def _forget(self, call: Any) -> None:
        with self._lock:
            self._calls.remove(call)
        call.cancel()

    def _cancel(self) -> None:
        with self._lock:
            calls = list(self._calls)
        for call in calls:
            call.cancel()


def _code(error: grpc.RpcError) -> grpc.StatusCode | None:
    return error.code() if isinstance(error, grpc.Call) else None


def _details(error: grpc.RpcError) -> str:
    if isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details() or ''}"[:MAX_DETAIL]
    return str(error)[:MAX_DETAIL]
