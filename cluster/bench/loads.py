"""Offered load: clients that wait for their answers, or arrivals that wait for nobody."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cluster.bench.errors import BenchError

T = TypeVar("T")
MAX_CLIENTS = 1024


@dataclass(frozen=True, slots=True)
class Load:
    """clients: closed loop, each sends its next request when it has its answer. rate: open loop,
    requests a second in a Poisson process. One of the two is set."""

    clients: int | None = None
    rate: float | None = None

    @property
    def name(self) -> str:
        if self.clients is not None:
            return "1 client" if self.clients == 1 else f"{self.clients} clients"
        return f"{self.rate:g}/s"

    def requests(self, prompts: int) -> int:
        """Requests of one run: every prompt once, and something to do for every client."""
        return max(prompts, self.clients or 0)


def parse_loads(concurrency: str, request_rate: str) -> tuple[Load, ...]:
    """From `--max-concurrency 1,4,16` and `--request-rate 0.5,2`. Raises BenchError."""
    closed = [Load(clients=_clients(word)) for word in _words(concurrency)]
    opened = [Load(rate=_rate(word)) for word in _words(request_rate)]
    if not closed and not opened:
        raise BenchError("no load is given; see --max-concurrency and --request-rate")
    return tuple(dict.fromkeys([*closed, *opened]))


def arrivals(rate: float, count: int, seed: int) -> list[float]:
    """Seconds from the start at which requests arrive: exponential gaps, equal for equal seeds."""
    draw = random.Random(seed)
    times, now_s = [], 0.0
    for _ in range(count):
        now_s += draw.expovariate(rate)
        times.append(now_s)
    return times


async def offer(
    load: Load,
    jobs: Sequence[Callable[[float], Awaitable[T]]],
    seed: int,
    clock: Callable[[], float],
) -> list[T]:
    """Run every job under the load, results in the jobs' order. A job is given the time at which
    it was due, so that an open loop counts what a late start costs (no coordinated omission)."""
    if load.clients is not None:
        return await _closed(load.clients, jobs, clock)
    start_s = clock()
    due = arrivals(load.rate or 1.0, len(jobs), seed)
    return await _together([_at(start_s + s, job, clock) for s, job in zip(due, jobs, strict=True)])


async def _at(due_s: float, job: Callable[[float], Awaitable[T]], clock: Callable[[], float]) -> T:
    await asyncio.sleep(max(0.0, due_s - clock()))
    return await job(due_s)


async def _closed(
    clients: int, jobs: Sequence[Callable[[float], Awaitable[T]]], clock: Callable[[], float]
) -> list[T]:
    results: dict[int, T] = {}
    waiting = iter(enumerate(jobs))

    async def client() -> None:
        for index, job in waiting:
            results[index] = await job(clock())

    await _together([client() for _ in range(clients)])
    return [results[index] for index in range(len(jobs))]


async def _together(work: Sequence[Awaitable[T]]) -> list[T]:
    """All of them; the first failure or a cancellation ends the rest before it leaves here."""
    tasks = [asyncio.ensure_future(job) for job in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _clients(word: str) -> int:
    if not (word.isascii() and word.isdigit() and 1 <= int(word[:6]) <= MAX_CLIENTS):
        raise BenchError(
            f"--max-concurrency: {word[:20]!r} is not a number from 1 to {MAX_CLIENTS}"
        )
    return int(word)


def _rate(word: str) -> float:
    try:
        rate = float(word)
    except ValueError:
        rate = 0.0
    if not 0.0 < rate < 1e6:  # inf is vLLM's "all at once": that is a closed loop here
        raise BenchError(
            f"--request-rate: {word[:20]!r} is not a number of requests a second above 0; for "
            "all at once use --max-concurrency"
        )
    return rate
