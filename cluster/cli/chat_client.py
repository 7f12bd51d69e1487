"""A chat over the OpenAI-compatible HTTP API: one request, streamed, with its figures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import httpx

# A stream may be quiet while a long prompt is read; it is never quiet for minutes.
TIMEOUT = httpx.Timeout(300.0, connect=10.0)
MAX_LINE = 1 << 20


class Message(TypedDict):
    role: str
    content: str


class ChatError(Exception):
    """One line for the terminal: what the server said, or why it could not be reached."""


@dataclass(frozen=True, slots=True)
class Summary:
    """tokens: completion tokens. decode_s: first text to last. acceptance_length: tokens per
    round of the request, None when the server does not say."""

    tokens: int
    first_s: float
    decode_s: float
    acceptance_length: float | None
    finish: str

    @property
    def tokens_per_s(self) -> float:
        return (self.tokens - 1) / self.decode_s if self.tokens > 1 and self.decode_s > 0 else 0.0


class ChatClient:
    """Raises ChatError only; `http` has the base URL and the headers."""

    def __init__(self, http: httpx.Client, clock: Callable[[], float] = time.perf_counter) -> None:
        self._http = http
        self._clock = clock

    def default_model(self) -> str:
        """The first model the server lists."""
        try:
            answer = self._http.get("/v1/models")
            if answer.status_code != 200:
                raise ChatError(_server_error(answer))
            return str(answer.json()["data"][0]["id"])
        except httpx.TransportError as error:
            raise ChatError(self._unreachable(error)) from error
        except (ValueError, LookupError, TypeError) as error:
            raise ChatError(f"{self._http.base_url}: not an OpenAI-compatible server") from error

    def ask(
        self,
        model: str,
        messages: Sequence[Message],
        show: Callable[[str], None],
        **sampling: float | int | None,
    ) -> Summary:
        """Stream one answer to `show`. A stream that ends without [DONE] is an error: a bare
        end of the connection is what a crashed server looks like."""
        body: dict[str, Any] = {
            name: value for name, value in sampling.items() if value is not None
        }
        body |= {"model": model, "messages": list(messages), "stream": True}
        body["stream_options"] = {"include_usage": True}
        reading = _Reading(show, self._clock)
        try:
            with self._http.stream("POST", "/v1/chat/completions", json=body) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise ChatError(_server_error(answer))
                for data in _events(answer.iter_lines()):
                    if data == "[DONE]":
                        return reading.summary()
                    reading.take(_parsed(data))
        except httpx.TransportError as error:
            raise ChatError(self._unreachable(error)) from error
        raise ChatError("the connection ended in the middle of the answer")

    def _unreachable(self, error: httpx.TransportError) -> str:
        return f"{self._http.base_url}: {str(error) or type(error).__name__}"


class _Reading:
    """What the chunks of one answer add up to."""

    def __init__(self, show: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._show = show
        self._clock = clock
        self._start = clock()
        self._first: float | None = None
        self._last = self._start
        self._tokens = 0
        self._finish = ""
        self._acceptance: float | None = None

    def take(self, chunk: dict[str, Any]) -> None:
        if error := chunk.get("error"):
            raise ChatError(str(error.get("message", error)) if isinstance(error, dict) else error)
        for choice in chunk.get("choices") or ():
            self._finish = choice.get("finish_reason") or self._finish
            if text := (choice.get("delta") or {}).get("content"):
                self._last = self._clock()
                self._first = self._last if self._first is None else self._first
                self._show(text)
        if usage := chunk.get("usage"):
            self._tokens = int(usage.get("completion_tokens", 0))
        speculation = (chunk.get("metrics") or {}).get("speculative_decoding") or {}
        if "mean_acceptance_length" in speculation:
            self._acceptance = float(speculation["mean_acceptance_length"])

    def summary(self) -> Summary:
        first = self._last if self._first is None else self._first
        return Summary(
            self._tokens, first - self._start, self._last - first, self._acceptance, self._finish
        )


def _events(lines: Iterator[str]) -> Iterator[str]:
    """The data of each server-sent event."""
    for line in lines:
        if len(line) > MAX_LINE:
            raise ChatError("the server sent a line of more than a mebibyte")
        if line.startswith("data:"):
            yield line[5:].strip()


def _parsed(data: str) -> dict[str, Any]:
    try:
        chunk = json.loads(data)
    except ValueError:
        raise ChatError(f"the server sent something that is not JSON: {data[:60]!r}") from None
    if not isinstance(chunk, dict):
        raise ChatError(f"the server sent no object: {data[:60]!r}")
    return chunk


def _server_error(answer: httpx.Response) -> str:
    try:
        return f"HTTP {answer.status_code}: {answer.json()['error']['message']}"
    except (ValueError, LookupError, TypeError):
        return f"HTTP {answer.status_code}"
