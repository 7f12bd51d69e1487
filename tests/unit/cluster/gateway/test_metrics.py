from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cluster.gateway.errors import RequestFailed
from cluster.gateway.service import GenerationService
from cluster.gateway.types import Chunk, GenerateSpec
from tests.unit.cluster.gateway.builders import (
    EOS,
    ScriptedBackend,
    make_app,
    make_chunks,
    make_client,
    make_service,
    make_spec,
    successors,
)


async def consume(service: GenerationService, spec: GenerateSpec) -> None:
    async for _ in service.stream(spec):
        pass


def value(service: GenerationService, name: str, **labels: str) -> float:
    labels |= {"model_name": "default", "engine": "0"}
    found = service.metrics.registry.get_sample_value(name, labels)
    assert found is not None, name
    return found


def per_position(service: GenerationService, name: str) -> list[float]:
    positions = range(service.settings.num_speculative_tokens)
    return [value(service, name, position=str(k)) for k in positions]


def spec_counts(service: GenerationService) -> tuple[float, float, float]:
    return (
        value(service, "vllm:spec_decode_num_drafts_total"),
        value(service, "vllm:spec_decode_num_draft_tokens_total"),
        value(service, "vllm:spec_decode_num_accepted_tokens_total"),
    )


async def test_a_fully_accepted_run_counts_rounds_drafts_and_no_bonus() -> None:
    backend = ScriptedBackend(lambda s: make_chunks(successors(11), 4))
    service = make_service(backend, num_speculative_tokens=5)
    await consume(service, make_spec())
    assert spec_counts(service) == (2, 8, 8)
    accepted = per_position(service, "vllm:spec_decode_num_accepted_tokens_per_pos_total")
    drafted = per_position(service, "pilotfish:spec_decode_num_draft_tokens_per_pos_total")
    assert accepted[:5] == drafted[:5] == [2, 2, 2, 2, 0]
    assert value(service, "vllm:generation_tokens_total") == 11 == 1 + (8 + 2)
    assert value(service, "pilotfish:remote_accepted_tokens_total") == 8
    assert value(service, "pilotfish:rounds_total", reason="drafted") == 2


async def test_an_end_inside_a_block_counts_only_what_was_delivered() -> None:
    chunks = [
        Chunk((4,), reason="prefill"),
        Chunk((5, 6, EOS), drafted=5, accepted=3, mechanism="suffix", finish="stop"),
    ]
    service = make_service(ScriptedBackend(lambda s: chunks))
    await consume(service, make_spec())
    assert spec_counts(service) == (1, 5, 3)
    assert value(service, "vllm:generation_tokens_total") == 4


async def test_a_stop_string_inside_a_block_trims_the_metrics_too() -> None:
    service = make_service(ScriptedBackend(lambda s: make_chunks(successors(11), 8)))
    await consume(service, make_spec(stop=("d",)))
    assert spec_counts(service) == (1, 8, 2)
    assert value(service, "vllm:generation_tokens_total") == 3
    accepted = per_position(service, "vllm:spec_decode_num_accepted_tokens_per_pos_total")
    assert accepted == sorted(accepted, reverse=True)
    assert sum(accepted) == 2


async def test_there_are_as_many_positions_as_draft_tokens_are_configured() -> None:
    service = make_service(ScriptedBackend(), num_speculative_tokens=4)
    families = [f for f in service.metrics.registry.collect() if f.name.endswith("_per_pos")]
    assert len(families) == 2
    for family in families:
        labels = [sample.labels["position"] for sample in family.samples]
        assert sorted(set(labels)) == ["0", "1", "2", "3"]


async def test_without_drafts_nothing_is_counted_as_a_rate_of_zero() -> None:
    service = make_service(ScriptedBackend(lambda s: make_chunks(successors(5), 0)))
    await consume(service, make_spec())
    assert spec_counts(service) == (0, 0, 0)
    assert value(service, "pilotfish:rounds_total", reason="client") == 4
    assert value(service, "pilotfish:rounds_total", reason="other") == 0
    assert b"NaN" not in service.metrics.render()


async def test_requests_leave_by_one_reason_and_gauges_return_to_zero() -> None:
    def script(spec: GenerateSpec) -> list[Chunk]:
        chunks = make_chunks(successors(9), 2, finish="stop" if spec.cohort == "c" else "length")
        return chunks[:2] if spec.tenant else chunks

    backend = ScriptedBackend(script)
    service = make_service(backend)
    await consume(service, make_spec())
    await consume(service, make_spec(cohort="c"))
    backend._failure = RequestFailed("lost")
    with pytest.raises(RequestFailed):
        await consume(service, make_spec(tenant="t"))
    closed = service.stream(make_spec())
    await anext(closed)
    assert value(service, "vllm:num_requests_running") == 1
    await closed.aclose()
    for reason in ("length", "stop", "error", "abort"):
        assert value(service, "vllm:request_success_total", finished_reason=reason) == 1
    assert value(service, "vllm:num_requests_running") == 0
    assert value(service, "vllm:num_requests_waiting") == 0
    assert len(service.in_flight) == 0


async def test_a_request_that_fails_before_its_first_token_leaves_the_queue() -> None:
    service = make_service(ScriptedBackend(lambda s: [], failure=RequestFailed("lost")))
    with pytest.raises(RequestFailed):
        await consume(service, make_spec())
    assert value(service, "vllm:num_requests_waiting") == 0
    assert value(service, "vllm:num_requests_running") == 0
    assert value(service, "vllm:request_success_total", finished_reason="error") == 1


async def test_latencies_are_per_token_on_the_services_clock() -> None:
    def ticks() -> Iterator[float]:
        now = 0.0
        while True:
            yield now
            now += 1.0

    clock = ticks()
    service = make_service(ScriptedBackend(lambda s: make_chunks(successors(9), 3)))
    service._clock = lambda: next(clock)
    last = [delta async for delta in service.stream(make_spec())][-1]
    assert last.timing is not None
    # start 0, then a delta a second: tokens 1 | 4 | 4
    assert (last.timing.ttft_s, last.timing.total_s, last.timing.mean_itl_s) == (1.0, 3.0, 0.25)
    assert value(service, "vllm:time_to_first_token_seconds_sum") == 1.0
    assert value(service, "vllm:inter_token_latency_seconds_count") == 8
    assert value(service, "vllm:inter_token_latency_seconds_sum") == 2.0
    assert value(service, "vllm:request_time_per_output_token_seconds_sum") == 0.25
    assert value(service, "vllm:e2e_request_latency_seconds_sum") == 3.0
    assert value(service, "vllm:request_queue_time_seconds_sum") == 0.25
    assert value(service, "vllm:request_prefill_time_seconds_sum") == 0.5


async def test_ids_models_paths_and_reasons_of_clients_add_no_series() -> None:
    def script(spec: GenerateSpec) -> list[Chunk]:
        odd = Chunk((2,), reason=f"reason-{spec.request_id}", finish="length")
        return [Chunk((1,), reason="prefill"), odd]

    backend = ScriptedBackend(script)
    app = make_app(backend)
    body = {"prompt": "a", "temperature": 0, "max_tokens": 2}
    async with make_client(app) as client:

        async def series() -> int:
            lines = (await client.get("/metrics")).text.splitlines()
            return sum(not line.startswith("#") for line in lines)

        await client.post("/v1/completions", json=body)
        before = await series()
        for i in range(500):
            change = {"request_id": f"id-{i}", "user": f"user-{i}", "metadata": {"cohort": f"c{i}"}}
            assert (await client.post("/v1/completions", json=body | change)).status_code == 200
            await client.post("/v1/completions", json=body | {"model": f"model-{i}"})
            await client.get(f"/v1/things/{i}")
        assert await series() == before


async def test_five_thousand_requests_leave_the_series_and_the_memory_constant() -> None:
    service = make_service(ScriptedBackend(lambda s: make_chunks([1, 2], 0)))
    await consume(service, make_spec(request_id="first"))
    size = len(service.metrics.render().splitlines())
    for i in range(5000):
        await consume(service, replace(make_spec(), request_id=f"id-{i}", cohort=f"c{i}"))
    assert len(service.metrics.render().splitlines()) == size
    assert len(service.in_flight) == 0


async def test_the_endpoint_gives_vllms_names_in_prometheus_text() -> None:
    async with make_client(make_app(served_model_name="alias")) as client:
        await client.post("/v1/completions", json={"prompt": "a", "max_tokens": 9})
        response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    labels = '{engine="0",model_name="alias"}'
    assert f"vllm:spec_decode_num_drafts_total{labels} 2.0" in response.text
    assert f"vllm:spec_decode_num_accepted_tokens_total{labels}" in response.text
    position = '{engine="0",model_name="alias",position="0"}'
    assert f"vllm:spec_decode_num_accepted_tokens_per_pos_total{position} 2.0" in response.text
