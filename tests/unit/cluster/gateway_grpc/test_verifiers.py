"""Laws of the backend: one request, whatever becomes of its verifiers, has one output."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from typing import cast

import pytest

from cluster.gateway.errors import (
    DuplicateRequest,
    InvalidRequest,
    NoVerifier,
    Overloaded,
    RequestFailed,
)
from cluster.gateway.verifier_inbox import Inbox, LinkLost
from cluster.gateway.verifier_link import LinkSettings, VerifierAddress
from cluster.gateway.verifier_pool import LinkPool
from cluster.gateway.verifiers import Router, VerifierBackend
from pilotfish.v1 import exchange_pb2 as pb
from tests.unit.cluster.gateway_grpc.fakes import (
    DIGEST,
    FAST,
    FakeRouter,
    Script,
    collect,
    expected,
    make_spec,
    make_stand,
    tokens_of,
)

OVERLOADED = pb.EngineError(kind=pb.ERROR_OVERLOADED, message="the queue is full")


async def test_chunks_are_the_verifiers_own_and_end_with_a_finish() -> None:
    async with make_stand(Script(per_chunk=5)) as stand:
        chunks = await collect(stand.backend.generate(make_spec(max_tokens=12)))
        assert [chunk.tokens for chunk in chunks] == [
            tuple(expected(3, 12)[i : i + 5]) for i in (0, 5, 10)
        ]
        assert [chunk.finish for chunk in chunks] == [None, None, "length"]
        assert [(c.drafted, c.accepted, c.remote) for c in chunks] == [
            (5, 4, True),
            (5, 4, True),
            (2, 1, True),
        ]
        assert stand.router.held.total() == 0


async def test_a_takeover_goes_on_from_exactly_what_was_yielded() -> None:
    async with make_stand(Script(die_after=6), Script()) as stand:
        chunks = await collect(stand.backend.generate(make_spec()))
        assert tokens_of(chunks) == expected(3, 12)
        (first,), (second,) = stand.verifiers[0].submits, stand.verifiers[1].submits
        assert list(second.output_ids) == expected(3, 6)
        assert list(second.prompt_ids) == list(first.prompt_ids) == [1, 2]
        assert second.sampling == first.sampling
        assert stand.router.held.total() == 0


async def test_a_takeover_before_the_first_token_resubmits_the_request() -> None:
    async with make_stand(Script(die_after=0), Script()) as stand:
        assert tokens_of(await collect(stand.backend.generate(make_spec()))) == expected(3, 12)
        assert list(stand.verifiers[1].submits[0].output_ids) == []


async def test_two_verifiers_lost_change_nothing_in_the_output() -> None:
    async with make_stand(Script(die_after=4), Script(die_after=8), Script()) as stand:
        assert tokens_of(await collect(stand.backend.generate(make_spec()))) == expected(3, 12)
        assert list(stand.verifiers[2].submits[0].output_ids) == expected(3, 8)


@pytest.mark.parametrize("seed", range(8))
async def test_any_schedule_of_losses_gives_the_same_output(seed: int) -> None:
    rng = random.Random(seed)
    deaths = sorted(rng.sample(range(40), rng.randint(1, 4)))
    scripts = [Script(die_after=at, per_chunk=rng.randint(1, 6)) for at in deaths]
    async with make_stand(*scripts, Script(per_chunk=rng.randint(1, 6))) as stand:
        outputs = await asyncio.gather(
            *(
                collect(stand.backend.generate(make_spec(f"r{i}", seed=i, max_tokens=40)))
                for i in range(6)
            )
        )
        for i, chunks in enumerate(outputs):
            assert tokens_of(chunks) == expected(i, 40)
            assert chunks[-1].finish == "length"
        assert stand.router.held.total() == 0


async def test_when_all_are_lost_the_request_ends_within_its_patience() -> None:
    async with make_stand(Script(die_after=4), Script(die_after=8), patience_s=0.5) as stand:
        seen: list[int] = []

        async def read() -> None:
            async for chunk in stand.backend.generate(make_spec()):
                seen.extend(chunk.tokens)

        started = asyncio.get_running_loop().time()
        with pytest.raises(NoVerifier, match="process is gone"):
            await read()
        assert asyncio.get_running_loop().time() - started < 3.0
        assert seen == expected(3, 8)
        assert stand.router.held.total() == 0


async def test_a_verifier_that_comes_back_in_time_is_used() -> None:
    async with make_stand(Script(die_after=4), Script()) as stand:
        spare = stand.router.addresses.pop()
        chunks = stand.backend.generate(make_spec())
        seen = list((await anext(chunks)).tokens)
        asyncio.get_running_loop().call_later(0.3, stand.router.addresses.append, spare)
        seen += tokens_of(await collect(chunks))
        assert seen == expected(3, 12)


async def test_an_unreachable_verifier_is_passed_over() -> None:
    async with make_stand(Script()) as stand:
        stand.router.addresses.insert(0, VerifierAddress("gone", "127.0.0.1:1"))
        assert tokens_of(await collect(stand.backend.generate(make_spec()))) == expected(3, 12)


async def test_a_silent_verifier_counts_as_lost() -> None:
    async with make_stand(Script(silent=True, hold_at=4), Script()) as stand:
        assert tokens_of(await collect(stand.backend.generate(make_spec()))) == expected(3, 12)


async def test_a_slow_verifier_that_answers_pings_is_not_lost() -> None:
    script = Script(hold_at=4)
    async with make_stand(script) as stand:
        loop = asyncio.get_running_loop()
        loop.call_later(5 * FAST.ping_interval_s * FAST.missed_pings, script.release.set)
        assert tokens_of(await collect(stand.backend.generate(make_spec()))) == expected(3, 12)
        assert stand.verifiers[0].streams == 1


async def test_an_overloaded_verifier_is_passed_over() -> None:
    async with make_stand(Script(refuse=OVERLOADED), Script()) as stand:
        assert tokens_of(await collect(stand.backend.generate(make_spec()))) == expected(3, 12)
        assert len(stand.verifiers[0].submits) == 1


async def test_overload_with_nowhere_else_to_go_is_said_at_once() -> None:
    async with make_stand(Script(refuse=OVERLOADED), patience_s=60.0) as stand:
        async with asyncio.timeout(2):
            with pytest.raises(Overloaded, match="queue is full") as caught:
                await collect(stand.backend.generate(make_spec()))
        assert caught.value.retry_after_s is not None


async def test_an_admitted_request_outlasts_an_overload_elsewhere() -> None:
    script = Script(refuse=OVERLOADED)
    async with make_stand(Script(die_after=4), script) as stand:

        def recover() -> None:
            script.refuse = None

        asyncio.get_running_loop().call_later(0.3, recover)
        assert tokens_of(await collect(stand.backend.generate(make_spec()))) == expected(3, 12)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (pb.ERROR_INVALID, InvalidRequest),
        (pb.ERROR_INTERNAL, RequestFailed),
        (pb.ERROR_DUPLICATE, DuplicateRequest),
    ],
)
async def test_a_refusal_concerns_one_request_and_is_not_taken_elsewhere(
    kind: pb.ErrorKind, error: type[Exception]
) -> None:
    script = Script(hold_at=4)
    async with make_stand(script, Script()) as stand:
        neighbour = asyncio.create_task(collect(stand.backend.generate(make_spec("n"))))
        await stand.verifiers[0].until(lambda: bool(stand.verifiers[0].submits))
        script.refuse = pb.EngineError(kind=kind, message="no", param="top_k")
        with pytest.raises(error) as caught:
            await collect(stand.backend.generate(make_spec("bad")))
        if kind == pb.ERROR_INVALID:
            assert caught.value.param == "top_k"  # type: ignore[attr-defined]
        script.release.set()
        assert tokens_of(await neighbour) == expected(3, 12)
        assert not stand.verifiers[1].submits
        assert stand.verifiers[0].streams == 1


async def test_a_request_the_verifier_gives_up_goes_on_elsewhere() -> None:
    async with make_stand(Script(give_up=True), Script()) as stand:
        assert tokens_of(await collect(stand.backend.generate(make_spec()))) == expected(3, 12)


async def test_closing_the_iterator_aborts_at_once() -> None:
    async with make_stand(Script(hold_at=4)) as stand:
        async with aclosing(stand.backend.generate(make_spec())) as chunks:
            await anext(chunks)
        verifier = stand.verifiers[0]
        await verifier.until(lambda: not verifier.running)
        assert verifier.aborts == [verifier.submits[0].request_id]
        assert stand.router.held.total() == 0


async def test_cancelling_before_the_first_token_aborts_at_once() -> None:
    """R12: seen while waiting, not at the next chunk."""
    async with make_stand(Script(hold_at=0)) as stand:
        task = asyncio.create_task(collect(stand.backend.generate(make_spec())))
        verifier = stand.verifiers[0]
        await verifier.until(lambda: bool(verifier.running))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await verifier.until(lambda: not verifier.running)
        assert len(verifier.aborts) == 1
        assert stand.router.held.total() == 0


async def test_a_finished_request_is_never_aborted() -> None:
    """S56: no abort of ids that have ended."""
    async with make_stand(Script()) as stand:
        for i in range(20):
            await collect(stand.backend.generate(make_spec(f"r{i}")))
        async with aclosing(stand.backend.generate(make_spec(max_tokens=1))) as chunks:
            assert (await anext(chunks)).finish == "length"
        await stand.verifiers[0].until(lambda: len(stand.verifiers[0].frames) > 21)
        assert stand.verifiers[0].aborts == []


async def test_an_id_used_again_never_sees_tokens_of_its_first_use() -> None:
    """The verifier is slow to abort: tokens of the old attempt are still on their way."""
    script = Script(hold_at=2, abort_lag=asyncio.Event())
    async with make_stand(script) as stand:
        async with aclosing(stand.backend.generate(make_spec(seed=1))) as chunks:
            await anext(chunks)
        again = asyncio.create_task(collect(stand.backend.generate(make_spec(seed=9))))
        await stand.verifiers[0].until(lambda: len(stand.verifiers[0].submits) == 2)
        script.release.set()
        assert tokens_of(await again) == expected(9, 12)


async def test_requests_that_come_together_travel_in_one_frame() -> None:
    async with make_stand(Script()) as stand:
        await stand.backend.info()
        await asyncio.gather(
            *(collect(stand.backend.generate(make_spec(f"r{i}"))) for i in range(50))
        )
        sizes = [len(frame.submits) for frame in stand.verifiers[0].frames]
        assert sum(sizes) == 50
        assert max(sizes) > 10
        assert stand.verifiers[0].streams == 1


async def test_a_frame_stays_under_its_limit() -> None:
    settings = LinkSettings(max_frame_bytes=4096)
    async with make_stand(Script(), settings=settings) as stand:
        await stand.backend.info()
        prompts = [tuple([15] * (300 * (i + 1))) for i in range(16)]
        await asyncio.gather(
            *(
                collect(stand.backend.generate(make_spec(f"r{i}", prompt=prompt)))
                for i, prompt in enumerate(prompts)
            )
        )
        frames = [frame for frame in stand.verifiers[0].frames if frame.submits]
        assert sum(len(frame.submits) for frame in frames) == 16
        assert any(len(frame.submits) > 1 for frame in frames)
        for frame in frames:
            assert len(frame.submits) == 1 or frame.ByteSize() <= 4096


async def test_a_reader_that_pauses_holds_up_nobody() -> None:
    async with make_stand(Script()) as stand:
        async with aclosing(stand.backend.generate(make_spec("slow", max_tokens=200))) as slow:
            seen = list((await anext(slow)).tokens)
            for i in range(5):
                fast = await collect(stand.backend.generate(make_spec(f"f{i}", seed=i)))
                assert tokens_of(fast) == expected(i, 12)
            await stand.verifiers[0].until(lambda: not stand.verifiers[0].running)
            seen += tokens_of(await collect(slow))
        assert seen == expected(3, 200)


async def test_a_verifier_that_overruns_max_tokens_is_left_and_fills_no_memory() -> None:
    async with make_stand(Script(overrun=True, per_chunk=4), Script()) as stand:
        chunks = await collect(stand.backend.generate(make_spec(max_tokens=12)))
        assert tokens_of(chunks) == expected(3, 12)


async def test_a_verifier_of_another_vocabulary_is_refused_with_its_reason() -> None:
    async with make_stand(Script(wrong_digest=True), patience_s=0.2) as stand:
        with pytest.raises(NoVerifier, match="tokenizer: another vocabulary"):
            await collect(stand.backend.generate(make_spec()))


async def test_losing_the_gateway_ends_its_requests_on_the_verifier() -> None:
    async with make_stand(Script(hold_at=4)) as stand:
        chunks = stand.backend.generate(make_spec())
        await anext(chunks)
        await stand.backend.close()
        await stand.verifiers[0].until(lambda: not stand.verifiers[0].running)
        await chunks.aclose()
        assert not stand.verifiers[0].running


async def test_info_and_health_tell_what_a_live_verifier_says() -> None:
    async with make_stand(Script()) as stand:
        info = await stand.backend.info()
        assert (info.id, info.vocab_size, info.max_model_len) == ("tiny", 17, 512)
        health = await stand.backend.health()
        assert (health.verifiers, [d.drafter for d in health.drafters]) == (1, ["d"])
        assert stand.router.held.total() == 0


async def test_info_without_a_verifier_is_a_typed_error() -> None:
    async with make_stand() as stand:
        with pytest.raises(NoVerifier):
            await stand.backend.info()
        with pytest.raises(NoVerifier):
            await stand.backend.health()


async def test_a_broken_stream_to_a_living_verifier_is_opened_anew() -> None:
    script = Script(hold_at=4)
    async with make_stand(script) as stand:
        chunks = stand.backend.generate(make_spec())
        seen = list((await anext(chunks)).tokens)
        stand.verifiers[0].kill()
        script.release.set()
        seen += tokens_of(await collect(chunks))
        assert seen == expected(3, 12)
        assert stand.verifiers[0].streams == 2


async def test_a_router_that_fails_is_asked_again_and_ends_in_a_typed_error() -> None:
    class Broken:
        def choose(self, request_id: str, exclude: frozenset[str]) -> FakeRouter:
            raise RuntimeError("the actor died")

    backend = VerifierBackend(
        cast("Router", Broken()), gateway="g", tokenizer_digest="", takeover_timeout_s=0.2
    )
    with pytest.raises(NoVerifier, match="RuntimeError: the actor died"):
        await collect(backend.generate(make_spec()))
    await backend.close()


async def test_lost_links_are_forgotten() -> None:
    """L3: replicas come and go under new names; nothing of the old ones stays."""
    hello = pb.GatewayHello(protocol=1, gateway="g", tokenizer=DIGEST)
    async with make_stand(*[Script() for _ in range(5)]) as stand:
        pool = LinkPool(hello, FAST)
        for verifier in stand.verifiers:
            link = await pool.get(verifier.address)
            assert await pool.get(verifier.address) is link
            inbox = link.submit(pb.Submit(request_id="r"))
            verifier.kill()
            with pytest.raises(LinkLost, match="process is gone"):
                await inbox.get()
            assert link.requests == 0
        assert len(pool) == 1
        assert pool.live() == []
        await pool.close()
        assert len(pool) == 0


async def test_what_has_arrived_is_read_before_the_loss_is_told() -> None:
    inbox = Inbox(budget=4)
    for tokens in ([1, 2], [3]):
        inbox.put(pb.TokenChunk(tokens=tokens))
    inbox.fail(LinkLost("gone"))
    assert [list((await inbox.get()).tokens) for _ in range(2)] == [[1, 2], [3]]
    with pytest.raises(LinkLost, match="gone"):
        await inbox.get()


async def test_an_inbox_holds_its_budget_and_no_more() -> None:
    inbox = Inbox(budget=3)
    assert inbox.put(pb.TokenChunk(tokens=[1, 2, 3]))
    assert not inbox.put(pb.TokenChunk(tokens=[4]))
    empties = Inbox(budget=3)
    assert not all(empties.put(pb.TokenChunk()) for _ in range(1000))
