"""The verifier's door over real gRPC: streams, refusals, and gateways that vanish."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest

from actors.engine.servicer import VerificationServicer
from actors.engine.thread import EngineThread
from actors.exchange.codec import sampling_to_pb
from actors.exchange.compat import PROTOCOL
from actors.sampling.params import SamplingParams
from pilotfish.v1 import exchange_pb2 as pb
from pilotfish.v1 import exchange_pb2_grpc as pb_grpc
from tests.drafters.oracle import OracleDrafter
from tests.law.harness import assert_pools_full, make_engine
from tests.models import make_succ

DIGEST = "d1"


class Gateway:
    """A gateway's end of one stream."""

    def __init__(
        self, stub: pb_grpc.VerificationStub, hello: pb.GatewayHello | None = None
    ) -> None:
        self._frames: queue.SimpleQueue[pb.GatewayFrame | None] = queue.SimpleQueue()
        hello = hello or pb.GatewayHello(protocol=PROTOCOL, gateway="g", tokenizer=DIGEST)
        self._frames.put(pb.GatewayFrame(hello=hello))
        self.call = stub.Serve(iter(self._frames.get, None))

    def send(self, **fields: object) -> None:
        self._frames.put(pb.GatewayFrame(**fields))

    def submit(self, name: str, prompt: list[int], **fields: object) -> None:
        sampling = SamplingParams(temperature=0.0, max_tokens=6)
        submit = pb.Submit(
            request_id=name, prompt_ids=prompt, sampling=sampling_to_pb(sampling), **fields
        )
        self.send(submits=[submit])

    def chunks(self) -> Iterator[pb.TokenChunk]:
        for frame in self.call:
            yield from frame.chunks

    def answer(self, name: str) -> list[pb.TokenChunk]:
        mine = []
        for chunk in self.chunks():
            if chunk.request_id == name:
                mine.append(chunk)
                if chunk.finish:
                    return mine
        return mine


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    drafter = OracleDrafter(lambda prefix, _: (prefix[-1] + 1) % 16, vocab_size=16)
    thread = EngineThread(make_engine(make_succ(), drafter, 3, max_model_len=64))
    thread.start()
    yield thread
    thread.stop()


@pytest.fixture
def spans() -> list[tuple]:
    return []


@pytest.fixture
def stub(engine: EngineThread, spans: list[tuple]) -> Iterator[pb_grpc.VerificationStub]:
    info = pb.VerifierInfo(verifier="v", vocab_size=16, tokenizer=DIGEST)
    server = grpc.server(futures.ThreadPoolExecutor(8))
    servicer = VerificationServicer(engine, lambda: info, lambda *span: spans.append(span))
    pb_grpc.add_VerificationServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield pb_grpc.VerificationStub(channel)
    server.stop(None).wait()


def owned(engine: EngineThread) -> int:
    return engine.call(engine.owned).result(10)


def test_one_stream_carries_many_requests_a_frame_an_engine_step(stub) -> None:
    gateway = Gateway(stub)
    for name, first in (("a", 3), ("b", 8)):
        gateway.submit(name, [first])
    texts: dict[str, list[int]] = {"a": [], "b": []}
    left = 2
    for chunk in gateway.chunks():
        texts[chunk.request_id].extend(chunk.tokens)
        assert len(chunk.tokens) <= chunk.accepted + 1
        left -= bool(chunk.finish)
        if not left:
            break
    assert texts == {"a": [4, 5, 6, 7, 8, 9], "b": [9, 10, 11, 12, 13, 14]}
    gateway.call.cancel()


def test_output_ids_of_another_verifier_are_gone_on_from(stub) -> None:
    gateway = Gateway(stub)
    gateway.submit("a", [3], output_ids=[4, 5, 6])
    assert [t for c in gateway.answer("a") for t in c.tokens] == [7, 8, 9]
    gateway.call.cancel()


def test_a_bad_submit_is_refused_alone_by_the_fields_name(stub) -> None:
    gateway = Gateway(stub)
    bad = sampling_to_pb(SamplingParams())
    bad.temperature = -1.0
    gateway.send(submits=[pb.Submit(request_id="t", prompt_ids=[3], sampling=bad)])
    (refused,) = gateway.answer("t")
    assert (refused.error.kind, refused.error.param) == (pb.ERROR_INVALID, "temperature")
    gateway.submit("p", [])
    (refused,) = gateway.answer("p")
    assert (refused.error.kind, refused.error.param) == (pb.ERROR_INVALID, "prompt")
    nothing = SamplingParams(min_tokens=1, stop_token_ids=frozenset(range(16)))
    submit = pb.Submit(request_id="n", prompt_ids=[3], sampling=sampling_to_pb(nothing))
    gateway.send(submits=[submit])
    (refused,) = gateway.answer("n")
    assert (refused.error.kind, refused.error.param) == (pb.ERROR_INVALID, "min_tokens")
    gateway.submit("ok", [3])
    assert gateway.answer("ok")[-1].finish == pb.FINISH_LENGTH
    gateway.call.cancel()


@pytest.mark.parametrize(
    ("hello", "field"),
    [
        (pb.GatewayHello(protocol=99, tokenizer=DIGEST), "protocol"),
        (pb.GatewayHello(protocol=PROTOCOL, tokenizer="other"), "tokenizer"),
    ],
)
def test_a_stream_that_cannot_work_is_refused_by_the_first_field_that_differs(
    stub, hello: pb.GatewayHello, field: str
) -> None:
    with pytest.raises(grpc.RpcError) as refusal:
        next(Gateway(stub, hello).call)
    assert refusal.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert refusal.value.details().startswith(field)


@pytest.mark.parametrize("how", ["abort", "cancel", "half-close"])
def test_a_gateway_that_leaves_leaves_nothing_behind(stub, engine: EngineThread, how: str) -> None:
    """S56, R12: also while the handler waits for a token."""
    engine.engine.limits.max_num_queued_reqs = 1024
    gateway = Gateway(stub)
    sampling = sampling_to_pb(SamplingParams(temperature=0.0, max_tokens=60))
    names = [f"r{i}" for i in range(20)]
    gateway.send(
        submits=[pb.Submit(request_id=n, prompt_ids=[3], sampling=sampling) for n in names]
    )
    next(gateway.chunks())
    if how == "abort":
        gateway.send(aborts=names)
    elif how == "cancel":
        gateway.call.cancel()
    else:
        gateway._frames.put(None)
    deadline = 200
    while owned(engine) and deadline:
        deadline -= 1
    assert owned(engine) == 0
    engine.call(lambda: assert_pools_full(engine.engine)).result(10)
    other = Gateway(stub)
    other.submit("next", [3])
    assert [t for c in other.answer("next") for t in c.tokens] == [4, 5, 6, 7, 8, 9]
    other.call.cancel()


def test_two_gateways_may_use_one_request_id(stub) -> None:
    one, two = Gateway(stub), Gateway(stub)
    one.submit("same", [3])
    two.submit("same", [8])
    assert [t for c in one.answer("same") for t in c.tokens] == [4, 5, 6, 7, 8, 9]
    assert [t for c in two.answer("same") for t in c.tokens] == [9, 10, 11, 12, 13, 14]
    one.call.cancel()
    two.call.cancel()


def test_a_traced_request_has_queue_prefill_and_round_spans(stub, spans: list[tuple]) -> None:
    gateway = Gateway(stub)
    parent = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    from pilotfish.v1 import common_pb2

    gateway.submit("a", [3], trace=common_pb2.TraceContext(traceparent=parent))
    gateway.answer("a")
    gateway.submit("untraced", [3])
    gateway.answer("untraced")
    names = [name for _, name, *_ in spans]
    assert names[:2] == ["queue", "prefill"]
    assert set(names[2:]) == {"round"}
    assert {trace for trace, *_ in spans} == {(parent, "")}
    assert all(start <= end for _, _, start, end, _ in spans)
    rounds = [attributes for *_, attributes in spans if "pilotfish.draft.depth" in attributes]
    assert rounds[0]["pilotfish.draft.accepted"] == rounds[0]["pilotfish.draft.depth"] == 3
    gateway.call.cancel()


def test_a_ping_is_answered(stub) -> None:
    gateway = Gateway(stub)
    gateway.send(ping_ns=123)
    for frame in gateway.call:
        if frame.pong_ns:
            assert frame.pong_ns == 123
            break
    gateway.call.cancel()


def test_an_engine_that_died_ends_every_stream_and_takes_no_other(stub, engine) -> None:
    """A gateway must learn of it at once, also one with nothing in flight, to take over."""
    idle, busy = Gateway(stub), Gateway(stub)
    next(idle.call)
    engine.engine.step = None  # the next round raises
    busy.submit("a", [3])
    assert list(idle.call) == []
    assert busy.answer("a") == []
    with pytest.raises(grpc.RpcError) as refusal:
        next(Gateway(stub).call)
    assert refusal.value.code() == grpc.StatusCode.UNAVAILABLE
