"""The blocking client."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import grpc

from pilotfish import _channel
from pilotfish._calls import Calls, Received
from pilotfish._options import GenerateOptions, Message, generate_request, tokenize_request
from pilotfish._retry import Deadline
from pilotfish._status import Status, status_of
from pilotfish._stubs import control_stub, inference_stub
from pilotfish._types import Delta, Generation, Model, generation_of, models_of
from pilotfish.v1 import control_pb2, inference_pb2

_T = TypeVar("_T")
_NO_OPTIONS: GenerateOptions = {}


class Client:
    """A connection to a Pilotfish server; safe to share between threads.

        with Client("127.0.0.1:8001") as client:
            generation = client.generate("Once upon a time", max_tokens=32, temperature=0)
            print(generation.text, generation.speculation.acceptance_rate)

    target: "host:port". api_key: sent as a bearer token. tls: False, True (system roots) or a
    file of PEM roots. timeout: seconds for each call, retries included; None for no limit.
    retries: how often a call is tried again while nothing of its answer has been received and
    the server is away or full; never after the first token.
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
        options = _channel.channel_options(target)
        credentials = _channel.credentials(tls)
        self._calls = Calls(api_key, timeout, retries)
        self._channel = (
            grpc.insecure_channel(target, options)
            if credentials is None
            else grpc.secure_channel(target, credentials, options)
        )
        self._closed = threading.Event()
        self._inference = inference_stub(self._channel)
        self._control = control_stub(self._channel)

    def generate(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        tokens: Sequence[int] | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Generation:
        """The whole output for a prompt, a chat or token ids (exactly one of them).

        client.generate(messages=[{"role": "user", "content": "Hi"}], seed=7, stop=["END"])

        Raises a `PilotfishError`; `GenerateOptions` lists the options.
        """
        request = generate_request(prompt, messages, tokens, options)
        return generation_of(self._unary(self._inference.Generate, request, options))

    def stream(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        tokens: Sequence[int] | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Stream:
        """The output as it is written; takes what `generate` takes.

            with client.stream("Once upon a time", max_tokens=32) as stream:
                for delta in stream:
                    print(delta.text, end="", flush=True)

        The call starts when the first delta is asked for.
        """
        request = generate_request(prompt, messages, tokens, options)
        metadata = self._calls.metadata(options)

        def start(timeout: float | None) -> Any:
            if self._closed.is_set():
                raise _channel.closed()
            return self._inference.GenerateStream(request, timeout=timeout, metadata=metadata)

        deadline = self._calls.deadline(options)
        return Stream(start, deadline, self._calls, request.model, self._closed)

    def models(self) -> list[Model]:
        """What the server serves."""
        response: inference_pb2.ModelsResponse = self._unary(
            self._inference.Models, inference_pb2.ModelsRequest()
        )
        return models_of(response)

    def tokenize(
        self,
        text: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        model: str = "",
    ) -> list[int]:
        """Token ids of a text, or of a chat under the model's template."""
        request = tokenize_request(text, messages, model)
        response: inference_pb2.TokenizeResponse = self._unary(self._inference.Tokenize, request)
        return list(response.ids)

    def status(self) -> Status:
        """Verifiers, drafters and the newest policy snapshot."""
        response: control_pb2.Status = self._unary(
            self._control.GetStatus, control_pb2.StatusRequest()
        )
        return status_of(response)

    def close(self) -> None:
        """Cancel whatever runs and close the connection."""
        self._closed.set()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _unary(
        self,
        method: Callable[..., _T],
        request: Any,
        options: GenerateOptions = _NO_OPTIONS,
    ) -> _T:
        metadata, deadline = self._calls.metadata(options), self._calls.deadline(options)
        for attempt in itertools.count():
            if self._closed.is_set():
                raise _channel.closed()
            try:
                left = deadline.left(time.monotonic())
                return method(request, timeout=left, metadata=metadata)
            except grpc.RpcError as error:
                ours = self._closed.is_set()
                pause = self._calls.pause(attempt, error, deadline, ours=ours)
            self._closed.wait(pause)
        raise AssertionError("the count of attempts has no end")


class Stream:
    """An output as it is written: iterate it; `close`, or leave its `with`, to cancel.

    The server aborts a cancelled request at once. Once a delta was received nothing is retried:
    a loss raises `UnavailableError`, so an iteration that ends without an error is complete.
    """

    def __init__(
        self,
        start: Callable[[float | None], Any],
        deadline: Deadline,
        calls: Calls,
        model: str,
        client_closed: threading.Event,
    ) -> None:
        self._client_closed = client_closed
        self._start = start
        self._deadline = deadline
        self._calls = calls
        self._call: Any = None
        self._received = Received(model)
        self._closed = threading.Event()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delta:
        if self._received.finished:
            raise StopIteration
        for attempt in itertools.count():
            if self._closed.is_set():
                raise _channel.closed()
            try:
                return self._receive()
            except grpc.RpcError as error:
                self._closed.wait(self._pause(attempt, error))
                self._call = None
        raise AssertionError("the count of attempts has no end")

    def read(self) -> Generation:
        """Wait for the rest; the whole output, deltas already taken included."""
        for _ in self:
            pass
        return self._received.whole()

    def close(self) -> None:
        """Cancel the request unless it has finished; from any thread, as often as you like."""
        self._closed.set()
        if self._call is not None:
            self._call.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _receive(self) -> Delta:
        if self._call is None:
            self._call = self._start(self._deadline.left(time.monotonic()))
            if self._closed.is_set():  # by another thread, which saw no call to cancel
                self._call.cancel()
        return self._received.take(next(self._call, None))

    def _pause(self, attempt: int, error: grpc.RpcError) -> float:
        ours = self._closed.is_set() or self._client_closed.is_set()
        received = bool(self._received)
        return self._calls.pause(attempt, error, self._deadline, ours=ours, received=received)
