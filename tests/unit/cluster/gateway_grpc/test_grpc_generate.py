"""Laws of Generate and GenerateStream, from the SDK through the gateway to scripted verifiers."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest

from cluster.gateway.settings import GatewaySettings
from pilotfish import (
    AsyncClient,
    Client,
    DeadlineExceededError,
    DuplicateRequestError,
    Generation,
    InternalError,
    OverloadedError,
    RequestCancelledError,
    UnavailableError,
)
from pilotfish.v1 import exchange_pb2
from pilotfish.v1 import inference_pb2 as pb
from pilotfish.v1.inference_pb2_grpc import InferenceStub
from policies.cohorts import Cohorts, Rule
from tests.unit.cluster.gateway_grpc.fakes import (
    Gateway,
    Script,
    expected,
    make_gateway,
    text_of,
)

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def settled(gateway: Gateway, verifier: int = 0) -> None:
    """Until the verifier runs nothing; no sleep, an event of the verifier's."""
    fake = gateway.stand.verifiers[verifier]
    await fake.until(lambda: not fake.running)
    assert len(gateway.service.in_flight) == 0
    assert gateway.stand.router.held.total() == 0


async def test_streaming_equals_unary() -> None:
    async with make_gateway(Script(per_chunk=3)) as gateway, AsyncClient(gateway.target) as client:
        whole = await client.generate("ab", seed=3, max_tokens=11, model="tiny")
        async with client.stream("ab", seed=3, max_tokens=11, model="tiny") as stream:
            deltas = [delta async for delta in stream]
            joined = await stream.read()
    assert whole.text == text_of(expected(3, 11))
    assert whole.token_ids == tuple(expected(3, 11))
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (2, 11)
    assert (whole.speculation.drafted, whole.speculation.accepted) == (11, 7)
    assert whole.finish_reason == "length"
    for field in Generation.__slots__:
        if field != "request_id":
            assert getattr(joined, field) == getattr(whole, field), field
    assert [delta.accepted for delta in deltas] == [2, 2, 2, 1]
    assert [bool(delta.finish_reason) for delta in deltas] == [False, False, False, True]
    assert [delta.usage is not None for delta in deltas] == [False, False, False, True]


async def test_the_blocking_client_gives_the_same() -> None:
    async with make_gateway(Script(per_chunk=3)) as gateway:

        def run() -> tuple[Generation, str]:
            with Client(gateway.target) as client:
                whole = client.generate("ab", seed=3, max_tokens=11)
                with client.stream("ab", seed=3, max_tokens=11) as stream:
                    return whole, "".join(delta.text for delta in stream)

        whole, streamed = await asyncio.to_thread(run)
    assert whole.text == streamed == text_of(expected(3, 11))


async def test_text_token_ids_and_chat_are_the_same_prompt() -> None:
    async with make_gateway(Script()) as gateway, AsyncClient(gateway.target) as client:
        await client.generate("abc", seed=1)
        await client.generate(tokens=[0, 1, 2], seed=1)
        await client.generate(messages=[{"role": "user", "content": "abc"}], seed=1)
        submits = gateway.stand.verifiers[0].submits
        assert [list(submit.prompt_ids) for submit in submits] == [[0, 1, 2]] * 3
        assert [submit.sampling.max_tokens for submit in submits] == [16, 16, 512 - 3]
        assert await client.tokenize("abc") == [0, 1, 2]
        assert await client.tokenize(messages=[{"role": "user", "content": "ba"}]) == [1, 0]
        assert [model.id for model in await client.models()] == ["tiny"]


async def test_a_stop_string_trims_text_tokens_and_usage_alike() -> None:
    """S02, over gRPC: text_of(expected(3, 8)) is "dkbipgne"."""
    async with make_gateway(Script(per_chunk=5)) as gateway, AsyncClient(gateway.target) as client:
        options = {"seed": 3, "max_tokens": 100, "stop": ["ip"]}
        whole = await client.generate("a", **options)  # type: ignore[arg-type]
        async with client.stream("a", **options) as stream:  # type: ignore[arg-type]
            joined = await stream.read()
        for answer in (whole, joined):
            assert answer.text == "dkb"
            assert answer.token_ids == tuple(expected(3, 5))
            assert answer.usage.completion_tokens == 5
            assert answer.finish_reason == "stop"
        await settled(gateway)


async def test_takeovers_change_nothing_the_client_sees() -> None:
    scripts = (Script(die_after=0), Script(die_after=4), Script(die_after=9), Script())
    async with (
        make_gateway(*scripts) as gateway,
        AsyncClient(gateway.target) as client,
        client.stream("a", seed=5, max_tokens=30) as stream,
    ):
        deltas = [delta async for delta in stream]
    assert "".join(delta.text for delta in deltas) == text_of(expected(5, 30))
    assert [t for delta in deltas for t in delta.token_ids] == expected(5, 30)


async def test_all_lost_after_the_first_token_is_an_error_and_is_not_retried() -> None:
    """R05: an explicit error instead of a clean end."""
    async with (
        make_gateway(Script(die_after=4), patience_s=0.3) as gateway,
        AsyncClient(gateway.target, retries=5) as client,
    ):
        stream = client.stream("a", seed=5, max_tokens=30)
        seen: list[str] = []

        async def read() -> None:
            while True:
                seen.append((await anext(stream)).text)

        async with asyncio.timeout(5):
            with pytest.raises(UnavailableError):
                await read()
    assert "".join(seen) == text_of(expected(5, 4))
    submits = gateway.stand.verifiers[0].submits
    assert [list(submit.output_ids) for submit in submits[:1]] == [[]]
    assert all(list(submit.output_ids) == expected(5, 4) for submit in submits[1:])


async def test_all_lost_before_the_first_token_is_retried() -> None:
    """R05: the first try finds nobody in time, the second a verifier that has come up."""
    script = Script(give_up=True)
    async with (
        make_gateway(script, patience_s=0.2) as gateway,
        AsyncClient(gateway.target, retries=3) as client,
    ):
        task = asyncio.create_task(client.generate("a", seed=5, max_tokens=6))
        await gateway.stand.verifiers[0].until(lambda: len(gateway.stand.verifiers[0].submits) > 2)
        script.give_up = False
        assert (await task).token_ids == tuple(expected(5, 6))


async def test_no_verifier_at_all_is_unavailable_in_time() -> None:
    async with (
        make_gateway(patience_s=0.2) as gateway,
        AsyncClient(gateway.target, retries=1) as client,
        asyncio.timeout(5),
    ):
        with pytest.raises(UnavailableError, match="No verifier"):
            await client.generate("a")


async def test_cancelling_a_waiting_task_frees_the_verifier_at_once() -> None:
    """R12, S56: unary and streamed, before the first token and after."""
    async with make_gateway(Script(hold_at=4)) as gateway, AsyncClient(gateway.target) as client:
        verifier = gateway.stand.verifiers[0]
        for call in (client.generate("a"), client.stream("a").read()):
            task = asyncio.create_task(call)
            await verifier.until(lambda: bool(verifier.running))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await settled(gateway)
        assert len(verifier.aborts) == 2


async def test_closing_a_stream_frees_the_verifier_and_disturbs_no_other() -> None:
    script = Script(hold_at=4)
    async with make_gateway(script) as gateway, AsyncClient(gateway.target) as client:
        verifier = gateway.stand.verifiers[0]
        other = asyncio.create_task(client.generate("a", seed=2, max_tokens=9))
        async with client.stream("a", max_tokens=9) as stream:
            await anext(stream)
        await verifier.until(lambda: len(verifier.running) == 1)
        with pytest.raises(RequestCancelledError):
            await anext(stream)
        script.release.set()
        assert (await other).token_ids == tuple(expected(2, 9))
        await settled(gateway)


async def test_a_stream_closed_by_another_task_ends_its_reader() -> None:
    async with make_gateway(Script(hold_at=0)) as gateway, AsyncClient(gateway.target) as client:
        stream = client.stream("a")
        reader = asyncio.create_task(stream.read())
        verifier = gateway.stand.verifiers[0]
        await verifier.until(lambda: bool(verifier.running))
        await stream.close()
        with pytest.raises(RequestCancelledError):
            await reader
        await settled(gateway)


async def test_a_blocking_stream_closed_by_another_thread_ends_its_reader() -> None:
    async with make_gateway(Script(hold_at=0)) as gateway:
        with Client(gateway.target) as client:
            stream = client.stream("a")
            reader = asyncio.create_task(asyncio.to_thread(stream.read))
            verifier = gateway.stand.verifiers[0]
            await verifier.until(lambda: bool(verifier.running))
            await asyncio.to_thread(stream.close)
            with pytest.raises(RequestCancelledError):
                await reader
        await settled(gateway)


async def test_a_lost_client_frees_the_verifier() -> None:
    async with make_gateway(Script(hold_at=4)) as gateway:
        client = AsyncClient(gateway.target)
        await anext(client.stream("a"))
        await client.close()
        await settled(gateway)
        assert len(gateway.stand.verifiers[0].aborts) == 1


async def test_a_deadline_is_a_deadline_and_aborts() -> None:
    async with make_gateway(Script(hold_at=4)) as gateway, AsyncClient(gateway.target) as client:
        with pytest.raises(DeadlineExceededError):
            await client.generate("a", timeout=0.2)
        await settled(gateway)
        with pytest.raises(TimeoutError):
            await client.stream("a", timeout=0.2).read()
        await settled(gateway)
        assert len(gateway.stand.verifiers[0].aborts) == 2


async def test_a_reader_that_stops_is_left_in_time_and_disturbs_nobody() -> None:
    settings = GatewaySettings(served_model_name="tiny", write_timeout_s=0.3)
    narrow = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]
    async with make_gateway(Script(per_chunk=1), settings=settings) as gateway:
        async with grpc.aio.insecure_channel(gateway.target, options=narrow) as channel:
            request = pb.GenerateRequest(prompt="a", max_tokens=500, request_id="x" * 128)
            call = InferenceStub(channel).GenerateStream(request)
            await call.read()
            async with AsyncClient(gateway.target) as client:
                other = await client.generate("a", seed=2, max_tokens=9)
            assert other.token_ids == tuple(expected(2, 9))
            async with asyncio.timeout(5):
                while len(gateway.service.in_flight):
                    await asyncio.sleep(0.02)
        await settled(gateway)


async def test_a_duplicate_id_is_refused_and_the_first_goes_on() -> None:
    script = Script(hold_at=4)
    async with make_gateway(script) as gateway, AsyncClient(gateway.target) as client:
        first = client.stream("a", seed=3, max_tokens=9, request_id="mine")
        await anext(first)
        with pytest.raises(DuplicateRequestError) as caught:
            await client.generate("a", request_id="mine")
        assert caught.value.param == "request_id"
        script.release.set()
        whole = await first.read()
        assert (whole.text, whole.request_id) == (text_of(expected(3, 9)), "mine")
        assert (await client.generate("a", request_id="mine")).request_id == "mine"


async def test_overload_is_retried_and_then_said() -> None:
    full = exchange_pb2.EngineError(kind=exchange_pb2.ERROR_OVERLOADED, message="full")
    async with make_gateway(Script(refuse=full)) as gateway:
        async with AsyncClient(gateway.target, retries=1) as client:
            with pytest.raises(OverloadedError, match="full"):
                await client.generate("a")
        assert len(gateway.stand.verifiers[0].submits) == 2


async def test_a_request_that_fails_alone_is_an_internal_error() -> None:
    broken = exchange_pb2.EngineError(kind=exchange_pb2.ERROR_INTERNAL, message="NaN logits")
    script = Script(refuse=broken)
    async with make_gateway(script) as gateway, AsyncClient(gateway.target) as client:
        with pytest.raises(InternalError, match="NaN logits"):
            await client.generate("a")
        assert len(gateway.stand.verifiers[0].submits) == 1
        script.refuse = None
        assert (await client.generate("a", seed=1, max_tokens=3)).token_ids == tuple(expected(1, 3))


async def test_trace_context_comes_from_metadata_and_the_request_wins() -> None:
    async with make_gateway(Script()) as gateway:
        async with AsyncClient(gateway.target) as client:
            await client.generate("a", traceparent=TRACEPARENT, tracestate="k=v")
        async with grpc.aio.insecure_channel(gateway.target) as channel:
            request = pb.GenerateRequest(prompt="a")
            request.trace.traceparent = TRACEPARENT.replace("0af7", "1bf7")
            await InferenceStub(channel).Generate(request, metadata=[("traceparent", TRACEPARENT)])
        traces = [submit.trace for submit in gateway.stand.verifiers[0].submits]
        assert [trace.traceparent.split("-")[1][:4] for trace in traces] == ["0af7", "1bf7"]
        assert traces[0].tracestate == "k=v"


async def test_the_bound_on_drafts_and_the_cohort_reach_the_verifier() -> None:
    settings = GatewaySettings(
        served_model_name="tiny", cohorts=Cohorts([Rule("talk", task=("chat",))])
    )
    async with (
        make_gateway(Script(), settings=settings) as gateway,
        AsyncClient(gateway.target) as client,
    ):
        await client.generate("a", speculative_n_max=0, cohort="chat")
        await client.generate("a")
        first, second = gateway.stand.verifiers[0].submits
        assert (first.HasField("max_draft_len"), first.max_draft_len, first.cohort) == (
            True,
            0,
            "talk",
        )
        assert (second.HasField("max_draft_len"), second.cohort) == (False, "default")
