"""Laws of a stream's end, against servers that break theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from pilotfish import (
    AsyncClient,
    Client,
    InternalError,
    InvalidRequestError,
    PilotfishError,
    RequestCancelledError,
    UnavailableError,
)
from pilotfish.v1 import inference_pb2 as pb

Behaviour = Callable[[Any], AsyncIterator[pb.GenerateDelta]]


@asynccontextmanager
async def make_server(behaviour: Behaviour) -> AsyncGenerator[str, None]:
    """A server whose GenerateStream does what `behaviour` does; yields its target."""

    async def handle(request: pb.GenerateRequest, context: Any) -> Any:
        async for delta in behaviour(context):
            await context.write(delta)

    method = grpc.unary_stream_rpc_method_handler(
        handle,
        request_deserializer=pb.GenerateRequest.FromString,
        response_serializer=pb.GenerateDelta.SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "pilotfish.v1.Inference", {"GenerateStream": method}
            ),
        )
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
        del server


async def read_both(target: str) -> list[PilotfishError]:
    """What reading a stream to its end raises, from both clients."""

    def blocking() -> PilotfishError:
        with Client(target, retries=2, timeout=10) as client, pytest.raises(PilotfishError) as got:
            client.stream("a").read()
        return got.value

    async with AsyncClient(target, retries=2, timeout=10) as client:
        with pytest.raises(PilotfishError) as got:
            await client.stream("a").read()
    return [got.value, await asyncio.to_thread(blocking)]


async def test_an_end_without_a_finish_reason_is_an_error() -> None:
    """A stream cut on its way is never a clean end, and never asked for again."""
    calls = []

    async def cut(context: Any) -> AsyncIterator[pb.GenerateDelta]:
        calls.append(1)
        yield pb.GenerateDelta(text="a", token_ids=[1])

    async with make_server(cut) as target:
        for error in await read_both(target):
            assert isinstance(error, UnavailableError)
    assert len(calls) == 2


async def test_a_loss_after_the_first_delta_is_not_retried() -> None:
    calls = []

    async def lost(context: Any) -> AsyncIterator[pb.GenerateDelta]:
        calls.append(1)
        yield pb.GenerateDelta(text="a", token_ids=[1])
        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    async with make_server(lost) as target:
        for error in await read_both(target):
            assert isinstance(error, UnavailableError)
    assert len(calls) == 2


async def test_a_loss_before_the_first_delta_is_retried() -> None:
    calls = []

    async def late(context: Any) -> AsyncIterator[pb.GenerateDelta]:
        calls.append(1)
        if len(calls) % 3:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        yield pb.GenerateDelta(text="a", token_ids=[1], finish_reason="stop")

    def blocking(target: str) -> str:
        with Client(target, retries=2) as client:
            return client.stream("a").read().text

    async with make_server(late) as target:
        async with AsyncClient(target, retries=2) as client:
            assert (await client.stream("a").read()).text == "a"
        assert await asyncio.to_thread(blocking, target) == "a"
    assert len(calls) == 6


async def test_a_cancellation_nobody_asked_for_is_a_server_going_away() -> None:
    """R05: what grpc's core says to calls that arrive while it shuts down; asked again."""
    calls = []

    async def stopping(context: Any) -> AsyncIterator[pb.GenerateDelta]:
        calls.append(1)
        if len(calls) % 2:
            await context.abort(grpc.StatusCode.CANCELLED, "CANCELLED")
        yield pb.GenerateDelta(text="a", token_ids=[1], finish_reason="stop")

    def blocking(target: str) -> str:
        with Client(target) as client:
            return client.stream("a").read().text

    async with make_server(stopping) as target:
        async with AsyncClient(target) as client:
            assert (await client.stream("a").read()).text == "a"
        assert await asyncio.to_thread(blocking, target) == "a"
    assert len(calls) == 4


async def test_closing_a_client_ends_its_calls_with_a_typed_error() -> None:
    arrived = asyncio.Event()

    async def waiting(context: Any) -> AsyncIterator[pb.GenerateDelta]:
        arrived.set()
        await asyncio.Event().wait()
        yield pb.GenerateDelta()

    async with make_server(waiting) as target:
        client = AsyncClient(target)
        reader = asyncio.create_task(client.stream("a").read())
        await arrived.wait()
        await client.close()
        with pytest.raises(RequestCancelledError):
            await reader
        with pytest.raises(RequestCancelledError):
            await client.models()
        arrived.clear()
        blocking = Client(target)
        thread = asyncio.create_task(asyncio.to_thread(blocking.stream("a").read))
        await arrived.wait()
        await asyncio.to_thread(blocking.close)
        with pytest.raises(RequestCancelledError):
            await thread
        with pytest.raises(RequestCancelledError):
            blocking.models()


async def test_a_method_the_server_lacks_is_an_error_of_the_base_class() -> None:
    async def never(context: Any) -> AsyncIterator[pb.GenerateDelta]:
        yield pb.GenerateDelta()

    async with make_server(never) as target, AsyncClient(target) as client:
        with pytest.raises(InternalError) as caught:
            await client.models()
    assert caught.value.code == "UNIMPLEMENTED"


@pytest.mark.parametrize("timeout", ["x", float("nan"), float("inf"), True, [1]])
async def test_a_time_out_that_is_none_is_refused_by_name(timeout: Any) -> None:
    """Where it is given: at the constructor or at the call."""
    for make in (Client, AsyncClient):
        with pytest.raises(InvalidRequestError) as caught:
            make("127.0.0.1:1", timeout=timeout)
        assert caught.value.param == "timeout"
    with Client("127.0.0.1:1") as client:
        for call in (client.generate, client.stream):
            with pytest.raises(InvalidRequestError) as caught:
                call("a", timeout=timeout)
            assert caught.value.param == "timeout"
    async with AsyncClient("127.0.0.1:1") as other:
        with pytest.raises(InvalidRequestError) as caught:
            await other.generate("a", timeout=timeout)
        assert caught.value.param == "timeout"


@pytest.mark.parametrize("retries", [-1, 1.5, "2", True])
def test_a_count_of_retries_that_is_none_is_refused_by_name(retries: Any) -> None:
    for make in (Client, AsyncClient):
        with pytest.raises(InvalidRequestError) as caught:
            make("127.0.0.1:1", retries=retries)
        assert caught.value.param == "retries"


@pytest.mark.parametrize("key", ["", "a b", "k\u00e9y", "line\nbreak"])
def test_a_key_that_no_header_can_carry_is_refused(key: str) -> None:
    for make in (Client, AsyncClient):
        with pytest.raises(ValueError, match="API key"):
            make("127.0.0.1:1", api_key=key)


def test_missing_roots_are_an_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        Client("127.0.0.1:1", tls="no/such/roots.pem")
