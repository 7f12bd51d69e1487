"""The client for asyncio; the blocking client's twin."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import grpc
import grpc.aio

from pilotfish import _channel
from pilotfish._calls import Calls, Received
from pilotfish._options import GenerateOptions, Message, generate_request, tokenize_request
from pilotfish._retry import Deadline
from pilotfish._status import Status, status_of
from pilotfish._stubs import control_stub, inference_stub
from pilotfish._types import Delta, Generation, Model, generation_of, models_of
from pilotfish.v1 import control_pb2, inference_pb2
from pilotfish.v1.inference_pb2_grpc import InferenceStub

_T = TypeVar("_T")
_NO_OPTIONS: GenerateOptions = {}


class AsyncClient:
    """A connection to a Pilotfish server, for one event loop; arguments as for `Client`.

        async with AsyncClient("127.0.0.1:8001") as client:
            async with client.stream("Once upon a time", max_tokens=32) as stream:
                async for delta in stream:
                    print(delta.text, end="", flush=True)

    Cancelling the task that waits cancels the call, and the server aborts the request.
    """

    def __init__(
        self,
        target: str,
        *,
        api_key: str | None = None,
        tls: _channel.TLS = False,
        timeout: float | None = 600.0,
        retries: int = 2,
    ) -> None:
        self._target = target
        self._credentials = _channel.credentials(tls)
        self._calls = Calls(api_key, timeout, retries)
        self._channel: grpc.aio.Channel | None = None
        self._closed = asyncio.Event()

    async def generate(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        tokens: Sequence[int] | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Generation:
        """The whole output; see `Client.generate`."""
        request = generate_request(prompt, messages, tokens, options)
        return generation_of(await self._unary(self._inference.Generate, request, options))

    def stream(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        tokens: Sequence[int] | None = None,
        **options: Unpack[GenerateOptions],
    ) -> AsyncStream:
        """The output as it is written; see `Client.stream`. Not a coroutine."""
        request = generate_request(prompt, messages, tokens, options)
        metadata = self._calls.metadata(options)

        def start(timeout: float | None) -> Any:
            return self._inference.GenerateStream(request, timeout=timeout, metadata=metadata)

        deadline = self._calls.deadline(options)
        return AsyncStream(start, deadline, self._calls, request.model, self._closed)

    async def models(self) -> list[Model]:
        """What the server serves."""
        response: inference_pb2.ModelsResponse = await self._unary(
            self._inference.Models, inference_pb2.ModelsRequest()
        )
        return models_of(response)

    async def tokenize(
        self,
        text: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        model: str = "",
    ) -> list[int]:
        """Token ids of a text, or of a chat under the model's template."""
        request = tokenize_request(text, messages, model)
        response: inference_pb2.TokenizeResponse = await self._unary(
            self._inference.Tokenize, request
        )
        return list(response.ids)

    async def status(self) -> Status:
        """Verifiers, drafters and the newest policy snapshot."""
        response: control_pb2.Status = await self._unary(
            control_stub(self._connected()).GetStatus, control_pb2.StatusRequest()
        )
        return status_of(response)

    async def close(self) -> None:
        """Cancel whatever runs and close the connection."""
        self._closed.set()
        if self._channel is not None:
            await self._channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def _inference(self) -> InferenceStub:
        return inference_stub(self._connected())

    def _connected(self) -> grpc.aio.Channel:
        """The channel belongs to the loop that runs at its first use."""
        if self._closed.is_set():
            raise _channel.closed()
        if self._channel is None:
            options = _channel.channel_options(self._target)
            self._channel = (
                grpc.aio.insecure_channel(self._target, options)
                if self._credentials is None
                else grpc.aio.secure_channel(self._target, self._credentials, options)
            )
        return self._channel

    async def _unary(
        self,
        method: Callable[..., Awaitable[_T]],
        request: Any,
        options: GenerateOptions = _NO_OPTIONS,
    ) -> _T:
        metadata, deadline = self._calls.metadata(options), self._calls.deadline(options)
        for attempt in itertools.count():
            if self._closed.is_set():
                raise _channel.closed()
            try:
                async with _ours(self._closed):
                    left = deadline.left(time.monotonic())
                    return await method(request, timeout=left, metadata=metadata)
            except grpc.RpcError as error:
                ours = self._closed.is_set()
                pause = self._calls.pause(attempt, error, deadline, ours=ours)
            await asyncio.sleep(pause)
        raise AssertionError("the count of attempts has no end")


class AsyncStream:
    """`Stream` for asyncio; it starts when the first delta is awaited."""

    def __init__(
        self,
        start: Callable[[float | None], Any],
        deadline: Deadline,
        calls: Calls,
        model: str,
        client_closed: asyncio.Event,
    ) -> None:
        self._client_closed = client_closed
        self._start = start
        self._deadline = deadline
        self._calls = calls
        self._call: Any = None
        self._received = Received(model)
        self._closed = asyncio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        if self._received.finished:
            raise StopAsyncIteration
        for attempt in itertools.count():
            if self._closed.is_set():
                raise _channel.closed()
            try:
                return await self._receive()
            except grpc.RpcError as error:
                await asyncio.sleep(self._pause(attempt, error))
                self._call = None
        raise AssertionError("the count of attempts has no end")

    async def read(self) -> Generation:
        """Wait for the rest; the whole output, deltas already taken included."""
        async for _ in self:
            pass
        return self._received.whole()

    async def close(self) -> None:
        """Cancel the request unless it has finished; as often as you like."""
        self._closed.set()
        if self._call is not None:
            self._call.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _receive(self) -> Delta:
        if self._call is None:
            self._call = self._start(self._deadline.left(time.monotonic()))
        async with _ours(self._closed, self._client_closed):
            message = await self._call.read()
        return self._received.take(message)

    def _pause(self, attempt: int, error: grpc.RpcError) -> float:
        ours = self._closed.is_set() or self._client_closed.is_set()
        received = bool(self._received)
        return self._calls.pause(attempt, error, self._deadline, ours=ours, received=received)


@asynccontextmanager
async def _ours(*closed: asyncio.Event) -> AsyncGenerator[None, None]:
    """A close() by another task looks like a cancellation of this one, which it is not."""
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if any(event.is_set() for event in closed) and task is not None and not task.cancelling():
            raise _channel.closed() from None
        raise
