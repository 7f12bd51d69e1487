"""Who may open a stream, and how often."""

from __future__ import annotations

import socket
from typing import Any

import grpc
import pytest

from actors.exchange import codec
from actors.exchange.compat import PROTOCOL, Compat
from actors.exchange.limits import Limits
from actors.exchange.server import DraftingServer
from pilotfish.v1 import exchange_pb2 as pb
from pilotfish.v1 import exchange_pb2_grpc as pb_grpc
from tests.unit.actors.exchange.helpers import ToyDrafter, serving
from tests.unit.actors.exchange.wire import TIMEOUT_S, Wire, wired


@pytest.mark.parametrize(
    ("field", "hello"),
    [
        ("protocol", {"protocol": PROTOCOL + 1}),
        ("target", {"compat": Compat(target="other")}),
        ("tokenizer", {"compat": Compat(tokenizer="other")}),
        ("drafter", {"compat": Compat(drafter="other")}),
        ("taps", {"compat": Compat(taps=(1, 3))}),
        ("rule", {"compat": Compat(taps=(1, 2), rule="typical")}),
        ("verifier", {"compat": Compat(taps=(1, 2)), "verifier": ""}),
        ("lane", {"compat": Compat(taps=(1, 2)), "lane": pb.LANE_UNSPECIFIED}),
        ("lane", {"compat": Compat(taps=(1, 2)), "lane": pb.LANE_BULK}),  # no round lane
    ],
)
def test_a_mismatch_refuses_the_stream_by_the_name_of_the_field(
    field: str, hello: dict[str, Any]
) -> None:
    ours = Compat("target", "tokenizer", "drafter")
    with serving(ToyDrafter(taps=(1, 2)), compat=ours) as endpoint:
        wire = Wire(endpoint.address, **hello)
        error = wire.ended()
        wire.stop()
    assert isinstance(error, grpc.Call)
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (error.details() or "").startswith(f"{field}: ")


def test_a_stream_without_hello_is_refused() -> None:
    with serving(ToyDrafter()) as endpoint, grpc.insecure_channel(endpoint.address) as channel:
        call = pb_grpc.DraftingStub(channel).Exchange(iter([pb.VerifierFrame(ping_ns=1)]))
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.details().startswith("hello: ")


def test_describe_tells_what_the_drafter_can_do() -> None:
    drafter = ToyDrafter(taps=(1, 2), vocab_size=97, max_context=50)
    with (
        serving(drafter, limits=Limits(max_sessions=7)) as endpoint,
        grpc.insecure_channel(endpoint.address) as channel,
    ):
        info = pb_grpc.DraftingStub(channel).Describe(pb.DescribeRequest(), timeout=TIMEOUT_S)
    assert codec.info_from_pb(info) == drafter.info
    assert info.max_sessions == 7


def test_a_busy_port_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = DraftingServer(ToyDrafter(), name="d0")
        with pytest.raises(OSError, match="cannot bind"):
            server.start(port=taken.getsockname()[1])
        server.stop(0)


def test_more_streams_than_the_limit_are_refused_and_not_queued() -> None:
    with (
        serving(ToyDrafter(), limits=Limits(max_streams=0)) as endpoint,
        wired(endpoint.address),
        wired(endpoint.address, verifier="v1"),
    ):  # two to spare
        third = Wire(endpoint.address, verifier="v2")
        error = third.ended()
        third.stop()
        assert isinstance(error, grpc.Call)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
