"""The backend against real engines: the two sides of `Verification` keep one contract."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace

import pytest
import torch

from actors.engine.options import EngineOptions
from actors.engine.service import EngineService
from actors.sampling.params import SamplingParams
from cluster.gateway.errors import InvalidRequest
from cluster.gateway.types import GenerateSpec
from cluster.gateway.verifier_link import VerifierAddress
from cluster.gateway.verifiers import VerifierBackend
from tests.models import make_rand, save_tiny
from tests.unit.cluster.gateway_grpc.fakes import FAST, FakeRouter, collect, tokens_of

MAX_TOKENS = 300


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return save_tiny(make_rand(), tmp_path_factory.mktemp("rand"))


@pytest.fixture
def engines(model_path: str) -> Iterator[list[EngineService]]:
    services = [
        EngineService(
            EngineOptions(
                model_path=model_path, verifier_id=f"v{i}", dtype="float64", max_model_len=512
            )
        )
        for i in range(2)
    ]
    yield services
    for service in services:
        service.stop(0.0)


def make_backend(engines: list[EngineService]) -> tuple[VerifierBackend, FakeRouter]:
    router = FakeRouter(
        *(
            VerifierAddress(engine.options.verifier_id, f"127.0.0.1:{engine.start('127.0.0.1')}")
            for engine in engines
        )
    )
    digest = engines[0].tokenizer_digest
    backend = VerifierBackend(router, gateway="g", tokenizer_digest=digest, settings=FAST)
    return backend, router


def make_spec(request_id: str = "r", temperature: float = 0.8) -> GenerateSpec:
    sampling = SamplingParams(
        temperature=temperature, seed=11, max_tokens=MAX_TOKENS, ignore_eos=True, logprobs=2
    )
    return GenerateSpec(request_id, (5, 6, 7), sampling)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_a_lost_engine_changes_nothing_in_the_output(
    engines: list[EngineService], temperature: float
) -> None:
    backend, router = make_backend(engines)
    whole = tokens_of(await collect(backend.generate(make_spec("whole", temperature))))
    assert len(whole) == MAX_TOKENS
    router.offered.clear()
    async with aclosing(backend.generate(make_spec("cut", temperature))) as chunks:
        seen = [await anext(chunks)]
        stopping = asyncio.create_task(asyncio.to_thread(engines[0].stop, 0.0))
        seen += await collect(chunks)
    await stopping
    assert router.offered == ["v0", "v1"], "the engine had finished before it was lost"
    assert tokens_of(seen) == whole
    assert sum(len(chunk.logprobs) for chunk in seen) == MAX_TOKENS
    assert seen[-1].finish == "length"
    await backend.close()


async def test_leaving_early_frees_every_block_of_the_engine(
    engines: list[EngineService],
) -> None:
    backend, _ = make_backend(engines)
    for i in range(5):
        async with aclosing(backend.generate(make_spec(f"r{i}"))) as chunks:
            await anext(chunks)
    async with asyncio.timeout(10):
        while True:
            figures = await asyncio.to_thread(engines[0].stats)
            if figures["running"] == figures["waiting"] == 0:
                break
    assert figures["free_blocks"] == figures["total_blocks"]
    await backend.close()


async def test_the_engines_refusal_names_its_field(engines: list[EngineService]) -> None:
    backend, _ = make_backend(engines)
    spec = make_spec()
    with pytest.raises(InvalidRequest) as caught:
        await collect(backend.generate(replace(spec, prompt_ids=(10**6,))))
    assert caught.value.param
    info = await backend.info()
    assert (info.max_model_len, info.dtype) == (512, "float64")
    assert info.tokenizer_digest == engines[0].tokenizer_digest
    await backend.close()
