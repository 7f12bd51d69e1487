"""From a real engine to both doors: what it refuses, and what it had computed before."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import pytest
import torch

from actors.engine.options import EngineOptions
from actors.engine.service import EngineService
from cluster.gateway.grpc_door import PUSHBACK_KEY
from cluster.gateway.grpc_server import GrpcSettings, start_grpc
from cluster.gateway.http import create_app
from cluster.gateway.service import GenerationService
from cluster.gateway.settings import GatewaySettings
from cluster.gateway.verifier_link import VerifierAddress
from cluster.gateway.verifiers import VerifierBackend
from pilotfish.v1 import inference_pb2 as pb
from pilotfish.v1.inference_pb2_grpc import InferenceStub
from tests.models import make_rand, make_tokenizer, save_tiny
from tests.unit.cluster.gateway_grpc.fakes import FAST, FakeRouter

PROMPT = "abcdefghijklmnopqrstuvwxyz"
BODY: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0}


class Doors:
    """An engine, and clients of the HTTP and the gRPC door over it."""

    def __init__(self, engine: EngineService, http: httpx.AsyncClient, stub: Any) -> None:
        self.engine, self.http, self.stub = engine, http, stub

    async def usage(self, **fields: object) -> dict[str, Any]:
        headers = {"x-pilotfish-tenant": str(fields.pop("tenant", ""))}
        answer = await self.http.post("/v1/completions", json=BODY | fields, headers=headers)
        assert answer.status_code == 200, answer.text
        usage: dict[str, Any] = answer.json()["usage"]
        return usage

    async def cached(self, **fields: object) -> int:
        return int((await self.usage(**fields))["prompt_tokens_details"]["cached_tokens"])

    async def metric(self, name: str, label: str = "") -> float:
        text = (await self.http.get("/metrics")).text
        lines = (li for li in text.splitlines() if li.startswith(f"{name}{{"))
        (line,) = (li for li in lines if label in li)
        return float(line.split()[-1])


@asynccontextmanager
async def open_doors(folder: Path, **options: Any) -> AsyncGenerator[Doors, None]:
    torch.set_num_threads(1)
    path = save_tiny(make_rand(), folder)
    settings = EngineOptions(path, "v0", dtype="float64", max_model_len=64, block_size=8, **options)
    async with doors_over(EngineService(settings)) as doors:
        yield doors


@asynccontextmanager
async def doors_over(engine: EngineService) -> AsyncGenerator[Doors, None]:
    """Of an engine whose model has a character a token; it is stopped afterwards."""
    router = FakeRouter(VerifierAddress("v0", f"127.0.0.1:{engine.start('127.0.0.1')}"))
    backend = VerifierBackend(
        router, gateway="g", tokenizer_digest=engine.tokenizer_digest, settings=FAST
    )
    settings = GatewaySettings(served_model_name="tiny")
    service = GenerationService(backend, make_tokenizer(128), settings)
    server = await start_grpc(service, GrpcSettings(), None)
    app = create_app(backend, make_tokenizer(128), settings, service=service)
    transport = httpx.ASGITransport(app)
    try:
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://gateway") as http,
            grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        ):
            yield Doors(engine, http, InferenceStub(channel))  # type: ignore[no-untyped-call]
    finally:
        await server.stop(0.2)
        await backend.close()
        engine.stop(0.0)


async def test_a_full_engine_is_429_with_retry_after_and_resource_exhausted(tmp_path: Path) -> None:
    async with open_doors(tmp_path, max_num_queued_reqs=1) as doors:
        limits = doors.engine.thread.engine.limits
        doors.engine.thread.call(lambda: setattr(limits, "max_num_queued_reqs", 0)).result(5)
        answer = await doors.http.post("/v1/completions", json=BODY | {"stream": True})
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert "the queue is full" in answer.json()["error"]["message"]
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await doors.stub.Generate(pb.GenerateRequest(prompt=PROMPT, max_tokens=4))
        assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        trailing = dict(refusal.value.trailing_metadata() or ())
        assert int(trailing[PUSHBACK_KEY]) > 0
        refused = "vllm:admission_rejections_total"
        assert await doors.metric(refused, 'reason="max_num_queued_reqs"') == 2
        assert await doors.metric(refused, 'reason="max_num_queued_tokens"') == 0
        doors.engine.thread.call(lambda: setattr(limits, "max_num_queued_reqs", 1)).result(5)
        assert (await doors.usage())["completion_tokens"] == 4


async def test_cached_tokens_are_in_usage_and_metrics_of_both_doors(tmp_path: Path) -> None:
    async with open_doors(tmp_path) as doors:
        assert [await doors.cached() for _ in range(2)] == [0, 24]
        assert await doors.cached(cache_salt="mine") == 0
        assert await doors.cached(tenant="them") == 0
        whole = await doors.stub.Generate(
            pb.GenerateRequest(prompt=PROMPT, max_tokens=4), metadata=[]
        )
        assert (whole.usage.prompt_tokens, whole.usage.cached_tokens) == (26, 24)
        salted = pb.GenerateRequest(prompt=PROMPT, max_tokens=4, cache_salt="mine", priority=-1)
        assert (await doors.stub.Generate(salted)).usage.cached_tokens == 24
        theirs = await doors.stub.Generate(
            pb.GenerateRequest(prompt=PROMPT, max_tokens=4),
            metadata=[("x-pilotfish-tenant", "others")],
        )
        assert theirs.usage.cached_tokens == 0
        assert await doors.metric("vllm:prefix_cache_queries_total") == 7 * 26
        assert await doors.metric("vllm:prefix_cache_hits_total") == 3 * 24
        assert await doors.metric("vllm:prompt_tokens_cached_total") == 3 * 24
        stats = doors.engine.stats()
        assert (stats["prefix_queries"], stats["prefix_hits"]) == (7 * 26, 3 * 24)
        assert 0 < stats["cached_blocks"] <= stats["free_blocks"] == stats["total_blocks"]


async def test_the_cache_can_be_switched_off(tmp_path: Path) -> None:
    async with open_doors(tmp_path, enable_prefix_caching=False) as doors:
        assert [await doors.cached() for _ in range(2)] == [0, 0]
