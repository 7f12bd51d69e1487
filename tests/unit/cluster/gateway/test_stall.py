"""A write that does not end ends its stream, and nothing else does."""

from __future__ import annotations

import asyncio

import pytest

from cluster.gateway.stall import Stalled, StallLimit


async def test_a_write_that_does_not_end_is_a_stall() -> None:
    cancelled = asyncio.Event()

    async def stream() -> None:
        async with StallLimit(0.02) as stall:
            stall.begin()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    with pytest.raises(Stalled):
        await stream()
    assert cancelled.is_set()
    current = asyncio.current_task()
    assert current is not None
    assert not current.cancelling()


async def test_a_stall_is_noticed_after_many_writes_that_ended() -> None:
    async def stream() -> None:
        async with StallLimit(0.02) as stall:
            for _ in range(1000):
                stall.begin()
                stall.end()
            stall.begin()
            await asyncio.Event().wait()

    with pytest.raises(Stalled):
        await stream()


async def test_waiting_for_the_next_token_is_no_stall() -> None:
    """Several limits long, between writes; a write that hangs afterwards still is one."""
    loop = asyncio.get_running_loop()
    waited = False

    async def stream() -> None:
        nonlocal waited
        async with StallLimit(0.01) as stall:
            stall.begin()
            stall.end()
            until = loop.time() + 0.05
            while loop.time() < until:
                await asyncio.sleep(0.005)
            waited = True
            stall.begin()
            await asyncio.Event().wait()

    with pytest.raises(Stalled):
        await stream()
    assert waited


async def test_errors_and_cancellations_pass_as_they_are() -> None:
    async def failing() -> None:
        async with StallLimit(5.0) as stall:
            stall.begin()
            raise TimeoutError("own")

    with pytest.raises(TimeoutError, match="own"):
        await failing()

    async def stuck() -> None:
        async with StallLimit(5.0) as stall:
            stall.begin()
            await asyncio.Event().wait()

    task = asyncio.create_task(stuck())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_stream_that_has_ended_leaves_no_timer() -> None:
    async with StallLimit(5.0) as stall:
        timer = stall._timer
    assert timer is not None
    assert timer.cancelled()
