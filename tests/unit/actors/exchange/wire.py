"""A client that speaks the wire itself, well or badly."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import torch

from actors.contracts import Commit, OpenSession, SessionKey
from actors.exchange import codec
from actors.exchange.compat import PROTOCOL, Compat
from actors.exchange.limits import channel_options
from pilotfish.v1 import exchange_pb2 as pb
from pilotfish.v1 import exchange_pb2_grpc as pb_grpc
from tests.unit.actors.exchange.helpers import GREEDY, ToyDrafter, serving

TIMEOUT_S = 10.0


class Wire:
    """One stream, by hand."""

    def __init__(self, address: str, *, options: Any = None, **hello: Any) -> None:
        self.channel = grpc.insecure_channel(
            address, options=channel_options() if options is None else options
        )
        self._frames: queue.Queue[pb.VerifierFrame | None] = queue.Queue()
        self._answers: queue.Queue[pb.DrafterFrame | None] = queue.Queue()
        self.verifier = hello.get("verifier", "v0")
        fields: dict[str, Any] = {
            "protocol": PROTOCOL,
            "verifier": "v0",
            "boot_epoch": 1,
            "lane": pb.LANE_ROUND,
            "compat": codec.compat_to_pb(hello.pop("compat", Compat())),
        }
        self.send(pb.VerifierFrame(hello=pb.Hello(**{**fields, **hello})))
        self.call = pb_grpc.DraftingStub(self.channel).Exchange(iter(self._frames.get, None))
        self.error: grpc.RpcError | None = None
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        try:
            for frame in self.call:
                self._answers.put(frame)
        except grpc.RpcError as error:
            self.error = error
        self._answers.put(None)

    def send(self, frame: pb.VerifierFrame) -> None:
        self._frames.put(frame)

    def answer(self) -> pb.DrafterFrame:
        frame = self._answers.get(timeout=TIMEOUT_S)
        assert frame is not None, f"the stream ended: {self.error}"
        return frame

    def ended(self) -> grpc.RpcError | None:
        while self._answers.get(timeout=TIMEOUT_S) is not None:
            pass
        return self.error

    def block(self) -> pb.Block:
        """The next block; anything else fails the test."""
        frame = self.answer()
        assert not frame.faults, frame
        (block,) = frame.blocks
        return block

    def fault(self) -> pb.Fault:
        frame = self.answer()
        assert not frame.blocks, frame
        (fault,) = frame.faults
        return fault

    def open(self, request: str, tokens: tuple[int, ...] = (1, 2), **fields: Any) -> None:
        self.send(pb.VerifierFrame(opens=[self.opening(request, tokens, **fields)]))

    def opening(self, request: str, tokens: tuple[int, ...], **fields: Any) -> pb.Open:
        epoch = fields.pop("epoch", 0)
        key = SessionKey(self.verifier, request, epoch)
        follow = fields.pop("follow", False)
        message = codec.open_to_pb(OpenSession(key, tokens, GREEDY), features_follow=follow)
        for name, value in fields.items():
            getattr(message, name).CopyFrom(value)
        return message

    def commit(
        self,
        request: str,
        from_len: int,
        tokens: tuple[int, ...] = (3,),
        *,
        depth: int = 4,
        epoch: int = 0,
        rows: torch.Tensor | None = None,
    ) -> None:
        key = SessionKey(self.verifier, request, epoch)
        commit = Commit(key, 1, from_len, tokens, rows, depth)
        self.send(pb.VerifierFrame(commits=[codec.commit_to_pb(commit)]))

    def close(self, request: str, epoch: int = 0) -> None:
        key = pb.SessionKey(request=request, epoch=epoch)
        self.send(pb.VerifierFrame(closes=[pb.Close(key=key, reason="stop")]))

    def end(self) -> None:
        self._frames.put(None)

    def stop(self) -> None:
        self.end()
        self.call.cancel()
        self.channel.close()


@contextmanager
def wired(address: str, **hello: Any) -> Iterator[Wire]:
    wire = Wire(address, **hello)
    try:
        assert wire.answer().welcome.info.max_sessions > 0
        yield wire
    finally:
        wire.stop()


@contextmanager
def speaking(drafter: ToyDrafter, **options: Any) -> Iterator[Wire]:
    with serving(drafter, **options) as endpoint, wired(endpoint.address) as wire:
        yield wire
