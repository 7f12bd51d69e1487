"""What answers of both endpoints share: usage, request metrics, the order of a stream's events.

`Answer` is one request's answer in the making; `chat` and `completions` say how their choices
look. Shapes are OpenAI's with vLLM's additions.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cluster.gateway.errors import GatewayError, RequestFailed
from cluster.gateway.settings import SpecMetrics
from cluster.gateway.speculation import request_metrics, spec_tokens_details
from cluster.gateway.sse import DONE, event, quoted
from cluster.gateway.text import TextCodec
from cluster.gateway.types import Delta, GenerateSpec, PositionScores, Stats

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)
MIN_LOGPROB = -9999.0  # JSON has no -inf


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """What the client asked to see, beside the choices."""

    include_usage: bool = False
    continuous_usage: bool = False
    token_ids: bool = False
    spec_details: bool = False
    top_logprobs: int | None = None
    spec_metrics: SpecMetrics = "summary"
    num_speculative_tokens: int = 0


@dataclass(slots=True)
class Collected:
    """A whole output, from its deltas."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    token_texts: list[str] = field(default_factory=list)
    logprobs: list[PositionScores] = field(default_factory=list)
    last: Delta = field(default_factory=lambda: Delta(text=""))


class Answer(ABC):
    """One request's answer, streamed (`events`) or whole (`body`). Not reusable."""

    prefix = ""
    object = ""
    chunk_object = ""

    def __init__(
        self, spec: GenerateSpec, codec: TextCodec, model: str, created: int, options: AnswerOptions
    ) -> None:
        self.spec = spec
        self.codec = codec
        self.options = options
        self._head: Json = {
            "id": f"{self.prefix}-{spec.request_id}",
            "object": self.chunk_object,
            "created": created,
            "model": model,
        }
        self._completion_tokens = 0

    @abstractmethod
    def opening(self) -> list[Json]:
        """Choices of the chunks that come before any text."""

    @abstractmethod
    def part(self, delta: Delta) -> Json | None:
        """The choice of one delta's chunk; None when it has nothing to show."""

    @abstractmethod
    def choice(self, collected: Collected) -> Json:
        """The choice of the whole answer."""

    async def events(self, deltas: AsyncGenerator[Delta, None]) -> AsyncGenerator[bytes, None]:
        """The stream. An error before the first delta is raised; a later one is an event, and
        then there is no [DONE]."""
        async with aclosing(deltas):
            first = await anext(deltas)
            opening = b"".join(self._chunk(choice) for choice in self.opening())
            yield opening + self._delta(first)
            last = first
            try:
                async for last in deltas:
                    if body := self._delta(last):
                        yield body
            except GatewayError as error:
                yield event(error_body(error))
                return
            except Exception:
                _LOG.exception("request %s failed while streaming", self.spec.request_id)
                yield event(error_body(RequestFailed("The request failed.")))
                return
        if self.options.include_usage:
            yield event(self._closing(last))
        yield DONE

    async def body(self, deltas: AsyncGenerator[Delta, None]) -> Json:
        """The whole answer."""
        whole = Collected()
        texts: list[str] = []
        async with aclosing(deltas):
            async for delta in deltas:
                texts.append(delta.text)
                whole.token_ids += delta.token_ids
                whole.token_texts += delta.token_texts
                whole.logprobs += delta.logprobs
                whole.last = delta
        whole.text = "".join(texts)
        answer = {
            **self._head,
            "object": self.object,
            "choices": [{"index": 0, **self.choice(whole)}],
            "system_fingerprint": None,
        }
        if self.options.token_ids:
            answer["prompt_token_ids"] = list(self.spec.prompt_ids)
        return answer | self._tail(whole.last)

    def ending(self, delta: Delta) -> Json:
        """The fields of a choice that say how it ended."""
        if delta.finish is None:
            return {"finish_reason": None}
        return {"finish_reason": delta.finish, "stop_reason": delta.stop_reason}

    def _delta(self, delta: Delta) -> bytes:
        self._completion_tokens += len(delta.token_ids)
        if self._plain and delta.text and delta.finish is None:
            return self._frame[0] + quoted(delta.text) + self._frame[1]
        choice = self.part(delta)
        return b"" if choice is None else self._chunk(choice)

    @cached_property
    def _plain(self) -> bool:
        """Whether nothing but the text tells one event in mid-stream from the next."""
        options = self.options
        return not (options.token_ids or options.continuous_usage) and options.top_logprobs is None

    @cached_property
    def _frame(self) -> tuple[bytes, bytes]:
        """What stands before and after the text of such an event."""
        mark = "\x00"  # in no name or id, so its quoted form stands once
        choice = self.part(Delta(text=mark))
        before, _, after = self._chunk(choice or {}).partition(quoted(mark))
        return before, after

    def _chunk(self, choice: Json) -> bytes:
        chunk: Json = {**self._head, "choices": [{"index": 0, **choice}]}
        if self.options.continuous_usage:
            chunk["usage"] = usage(len(self.spec.prompt_ids), self._completion_tokens)
        elif self.options.include_usage:
            chunk["usage"] = None
        return event(chunk)

    def _closing(self, last: Delta) -> Json:
        return {**self._head, "choices": [], **self._tail(last)}

    def _tail(self, last: Delta) -> Json:
        tail: Json = {"usage": usage(last.prompt_tokens, last.completion_tokens, last.stats)}
        options = self.options
        metrics = request_metrics(last, options.spec_metrics, options.num_speculative_tokens)
        if metrics is not None:
            tail["metrics"] = metrics
        if options.spec_details and last.stats is not None:
            tail["sglext"] = {"spec_tokens_details": spec_tokens_details(last.stats)}
        return tail


def usage(prompt_tokens: int, completion_tokens: int, stats: Stats | None = None) -> Json:
    """Counted from committed ids alone (S08). OpenAI's prediction fields count drafted tokens."""
    counts: Json = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
    if stats is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": stats.cached_tokens}
        counts["completion_tokens_details"] = {
            "accepted_prediction_tokens": stats.accepted,
            "rejected_prediction_tokens": stats.drafted - stats.accepted,
            "reasoning_tokens": 0,
        }
    return counts


def error_body(error: GatewayError) -> Json:
    return {
        "error": {
            "message": error.message,
            "type": error.type_,
            "param": error.param,
            "code": error.code,
        }
    }
