from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from tests.unit.cluster.gateway.builders import (
    ScriptedBackend,
    make_app,
    make_chunks,
    make_client,
    successors,
)

LONG = {"prompt": "a", "temperature": 0, "max_tokens": 60}


def make_endless(free: int = 2) -> tuple[ScriptedBackend, asyncio.Semaphore]:
    """A backend that gives `free` chunks, then one for each release of the semaphore."""
    steps = asyncio.Semaphore(0)
    backend = ScriptedBackend(
        lambda spec: make_chunks(successors(600), 3), pace=steps.acquire, free=free
    )
    return backend, steps


class Call:
    """One request driven message by message, so that the client can go at any point."""

    def __init__(
        self, app: FastAPI, body: dict[str, Any], reads: int = 0, complete: bool = True
    ) -> None:
        """`reads`: messages the client takes before it stops reading; 0 for all."""
        path = "/v1/completions"
        self._receive: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        content = json.dumps(body).encode()
        self._receive.put_nowait(
            {"type": "http.request", "body": content, "more_body": not complete}
        )
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue(reads)
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "method": "POST",
            "path": path, "raw_path": path.encode(), "query_string": b"", "headers": [],
            "http_version": "1.1", "scheme": "http", "server": ("gateway", 80),
        }  # fmt: skip
        self.task = asyncio.create_task(app(scope, self._receive.get, self.sent.put))

    def leave(self) -> None:
        self._receive.put_nowait({"type": "http.disconnect"})


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_aborts_its_request_within_two_rounds(stream: bool) -> None:
    backend, steps = make_endless()
    app = make_app(backend)
    call = Call(app, LONG | {"stream": stream, "request_id": "gone"})
    stays = Call(app, LONG | {"stream": True, "request_id": "stays"})
    while backend.rounds < 4:
        await asyncio.sleep(0)
    before = backend.rounds
    call.leave()
    await asyncio.wait_for(call.task, 5)
    assert backend.aborted == ["gone"]
    assert backend.rounds <= before + 2
    assert backend.running == {"stays"}
    steps.release()
    for _ in range(2000):
        if backend.rounds > before:
            break
        await asyncio.sleep(0)
    assert backend.rounds == before + 1
    stays.leave()
    await asyncio.wait_for(stays.task, 5)
    assert not backend.running


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_before_the_first_token_aborts_too(stream: bool) -> None:
    backend, _ = make_endless(free=0)
    call = Call(make_app(backend), LONG | {"stream": stream})
    while not backend.running:
        await asyncio.sleep(0)
    call.leave()
    await asyncio.wait_for(call.task, 5)
    assert len(backend.aborted) == 1
    assert not backend.running


async def test_a_client_that_leaves_inside_its_body_disturbs_nothing() -> None:
    backend = ScriptedBackend()
    call = Call(make_app(backend), LONG, complete=False)
    call.leave()
    await asyncio.wait_for(call.task, 5)
    assert (await call.sent.get())["status"] == 499
    assert not backend.specs


@pytest.mark.parametrize("stream", [True, False])
async def test_a_cancelled_handler_aborts_its_request(stream: bool) -> None:
    backend, _ = make_endless()
    call = Call(make_app(backend), LONG | {"stream": stream})
    while backend.rounds < 2:
        await asyncio.sleep(0)
    call.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.task
    assert len(backend.aborted) == 1
    assert not backend.running


async def test_a_client_that_stops_reading_is_taken_for_gone() -> None:
    backend, _ = make_endless(free=500)
    app = make_app(backend, write_timeout_s=0.02)
    call = Call(app, LONG | {"stream": True}, reads=3)
    await asyncio.wait_for(call.task, 5)
    assert len(backend.aborted) == 1
    assert backend.rounds < 10


async def test_a_complete_answer_aborts_nothing_and_frees_its_id() -> None:
    backend = ScriptedBackend()
    async with make_client(make_app(backend)) as client:
        for stream in (False, True, False):
            body = LONG | {"stream": stream, "request_id": "same"}
            assert (await client.post("/v1/completions", json=body)).status_code == 200
    assert backend.aborted == []


@pytest.mark.parametrize("stream", [True, False])
async def test_an_id_in_flight_is_refused_and_the_first_request_goes_on(stream: bool) -> None:
    backend, steps = make_endless()
    app = make_app(backend)
    first = Call(app, LONG | {"stream": True, "request_id": "one"})
    while backend.rounds < 2:
        await asyncio.sleep(0)
    async with make_client(app) as client:
        body = LONG | {"request_id": "one", "stream": stream}
        answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 409
    assert answer.json()["error"]["param"] == "request_id"
    assert backend.running == {"one"}
    assert len(backend.specs) == 1
    first.leave()
    await first.task
    steps.release()


@asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[str]:
    """The app behind real sockets on the loopback interface."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task


async def test_closed_sockets_abort_streamed_and_whole_answers() -> None:
    backend, _ = make_endless()
    async with serving(make_app(backend)) as url, httpx.AsyncClient(base_url=url) as client:
        body = LONG | {"stream": True, "request_id": "streamed"}
        async with client.stream("POST", "/v1/completions", json=body) as response:
            async for _ in response.aiter_lines():
                break
        await asyncio.wait_for(backend.idle.wait(), 2)
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v1/completions", json=LONG | {"request_id": "whole"}, timeout=0.2)
        await asyncio.wait_for(backend.idle.wait(), 2)
    assert backend.aborted == ["streamed", "whole"]
