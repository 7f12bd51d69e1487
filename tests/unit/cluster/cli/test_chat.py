from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from rich.console import Console

from cluster.cli.chat import Conversation, figures
from cluster.cli.chat_client import ChatClient, ChatError, Summary


def text_chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


USAGE = {
    "choices": [],
    "usage": {"prompt_tokens": 3, "completion_tokens": 5},
    "metrics": {"speculative_decoding": {"mean_acceptance_length": 2.5}},
}


def sse(*chunks: object, done: bool = True) -> bytes:
    events = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks]
    return "".join(
        f"data: {event}\n\n" for event in [*events, *(["[DONE]"] if done else [])]
    ).encode()


class Server:
    """Scripted answers; keeps the bodies it was sent."""

    def __init__(self, *answers: httpx.Response | BaseException) -> None:
        self.answers = list(answers)
        self.bodies: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "tiny"}]})
        self.bodies.append(json.loads(request.content))
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def make_client(server: Callable[[httpx.Request], httpx.Response]) -> ChatClient:
    ticks = iter(range(1000))
    http = httpx.Client(transport=httpx.MockTransport(server), base_url="http://test")
    return ChatClient(http, clock=lambda: float(next(ticks)))


def make_chat(server: Server, system: str | None = None) -> tuple[Conversation, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, width=200, highlight=False)
    return Conversation(make_client(server), "tiny", system, console), out


def reader(*lines: str) -> Callable[[], str]:
    given = iter(lines)

    def read() -> str:
        try:
            return next(given)
        except StopIteration:
            raise EOFError from None

    return read


def test_an_answer_streams_and_its_figures_are_the_servers() -> None:
    server = Server(
        httpx.Response(200, content=sse(text_chunk("he"), text_chunk("llo", "stop"), USAGE))
    )
    seen: list[str] = []
    summary = make_client(server).ask("tiny", [], seen.append, temperature=0.5, max_tokens=None)
    assert seen == ["he", "llo"]
    assert summary == Summary(5, 1.0, 1.0, 2.5, "stop")
    assert summary.tokens_per_s == 4.0
    body = server.bodies[0]
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    assert body["temperature"] == 0.5
    assert "max_tokens" not in body


def test_the_figures_line_says_tokens_per_second_and_acceptance_length() -> None:
    line = figures(Summary(41, 0.5, 2.0, 2.5, "length"))
    assert line == (
        "41 tokens, first after 0.50 s, 20.0 tokens/s, acceptance length 2.50,"
        " cut at the token limit"
    )
    assert figures(Summary(1, 0.5, 0.0, None, "stop")) == "1 tokens, first after 0.50 s"


def test_the_conversation_carries_its_history_and_clear_keeps_the_system_prompt() -> None:
    answer = [httpx.Response(200, content=sse(text_chunk("yes"), USAGE)) for _ in range(3)]
    server = Server(*answer)
    chat, out = make_chat(server, system="be brief")
    chat.talk(reader("one", "", "two", "/clear", "/what", "three", "/exit", "never"))
    roles = [[message["content"] for message in body["messages"]] for body in server.bodies]
    assert roles == [
        ["be brief", "one"],
        ["be brief", "one", "yes", "two"],
        ["be brief", "three"],
    ]
    assert "/clear forgets" in out.getvalue()


def test_an_interrupt_keeps_what_was_said_and_the_conversation_goes_on() -> None:
    closed: list[bool] = []

    class Interrupted(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield sse(text_chunk("half an ans"), done=False)
            raise KeyboardInterrupt

        def close(self) -> None:
            closed.append(True)

    server = Server(
        httpx.Response(200, stream=Interrupted()),
        httpx.Response(200, content=sse(text_chunk("more"), USAGE)),
    )
    chat, out = make_chat(server)
    chat.talk(reader("one", "two"))
    assert closed == [True]
    assert [message["content"] for message in chat.messages] == [
        "one",
        "half an ans",
        "two",
        "more",
    ]
    assert "stopped" in out.getvalue()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx.Response(404, json={"error": {"message": "no model"}}), "HTTP 404: no model"),
        (httpx.Response(502, text="<html>"), "HTTP 502"),
        (httpx.Response(200, content=sse(text_chunk("a"), done=False)), "ended in the middle"),
        (httpx.Response(200, content=sse({"error": {"message": "lost"}}, done=False)), "lost"),
        (httpx.Response(200, content=sse("{")), "not JSON"),
        (httpx.ConnectError("refused"), "refused"),
    ],
)
def test_a_failed_answer_is_shown_and_leaves_no_trace_in_the_history(
    answer: httpx.Response | Exception, message: str
) -> None:
    chat, out = make_chat(Server(answer))
    chat.answer("one")
    assert message in out.getvalue()
    assert chat.messages == []


def test_the_model_is_the_servers_own_by_default_and_a_stranger_is_recognised() -> None:
    assert make_client(Server()).default_model() == "tiny"
    with pytest.raises(ChatError, match="not an OpenAI-compatible server"):
        make_client(lambda request: httpx.Response(200, text="hello")).default_model()


def test_text_of_the_model_is_never_read_as_terminal_markup() -> None:
    server = Server(httpx.Response(200, content=sse(text_chunk("[red]x[/red] [/]"), USAGE)))
    chat, out = make_chat(server)
    chat.answer("one")
    assert "[red]x[/red] [/]" in out.getvalue()
