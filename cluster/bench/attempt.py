"""One cell, measured: its prompts under its load at one server, with what was alive meanwhile."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from cluster.bench.dataset import Prompt
from cluster.bench.legs import Leg
from cluster.bench.loads import Load, offer
from cluster.bench.positions import Counts, between
from cluster.bench.sample import Recorder, Sample, error_line
from cluster.bench.schedule import Cell
from cluster.bench.watch import refusal
from cluster.sighting import Sighting
from pilotfish import Delta, GenerateOptions, PilotfishError

Clock = Callable[[], float]


class Door(Protocol):
    """A server as the benchmark sees it."""

    def stream(
        self, prompt: Prompt, options: GenerateOptions
    ) -> AbstractAsyncContextManager[AsyncIterator[Delta]]: ...

    async def sight(self) -> Sighting: ...

    async def positions(self) -> Counts:
        """Drafted and accepted so far by position; empty where nobody counts them."""
        ...


@dataclass(frozen=True, slots=True)
class Asking:
    """What every request of the run has in common."""

    max_tokens: int
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """A measured cell. began_s, ended_s: first request due, last answer there. repeated: prompts
    this server had answered before. refused: why it says nothing about its leg. busy: the
    machine's load average over the last minute, at the end."""

    cell: Cell
    began_s: float
    ended_s: float
    samples: tuple[Sample, ...]
    before: Sighting
    after: Sighting
    positions: Counts
    repeated: int
    refused: str | None
    busy: float | None

    @property
    def wall_s(self) -> float:
        return self.ended_s - self.began_s


async def measure(
    cell: Cell,
    door: Door,
    asking: Asking,
    repeated: int,
    *,
    on_answer: Callable[[], None] = lambda: None,
    clock: Clock = time.perf_counter,
) -> Attempt:
    """Raises nothing for requests that fail: they are samples with an error."""
    before, counts = await door.sight(), await door.positions()

    async def job(number: int, prompt: Prompt, due_s: float) -> Sample:
        options = request_options(cell, number, asking)
        sample = await answer(door, prompt, options, due_s, clock)
        on_answer()
        return sample

    jobs = [partial(job, number, prompt) for number, prompt in enumerate(cell.prompts)]
    began_s = clock()
    samples = await offer(cell.setting.load, jobs, cell.seed, clock)
    ended_s = max((sample.end_s for sample in samples), default=clock())
    after = await door.sight()
    return Attempt(
        cell=cell,
        began_s=began_s,
        ended_s=ended_s,
        samples=tuple(samples),
        before=before,
        after=after,
        positions=between(counts, await door.positions()),
        repeated=repeated,
        refused=refusal(cell.leg, before, after, samples),
        busy=load_average(),
    )


async def warm(
    door: Door,
    legs: Sequence[Leg],
    clients: int,
    rounds: int,
    clock: Clock = time.perf_counter,
) -> None:
    """Requests whose figures nobody sees: alone, then as many at once as will be. Their prompts
    are not the workload's."""
    for leg in legs:
        for number in range(rounds):
            options = _greedy(leg, 16)
            await answer(door, _warm_prompt(leg, number), options, clock(), clock)

        async def job(number: int, due_s: float, leg: Leg = leg) -> Sample:
            prompt = _warm_prompt(leg, rounds + number)
            return await answer(door, prompt, _greedy(leg, 8), due_s, clock)

        jobs = [partial(job, number) for number in range(clients if rounds else 0)]
        await offer(Load(clients=max(1, clients)), jobs, 0, clock)


async def answer(
    door: Door, prompt: Prompt, options: GenerateOptions, due_s: float, clock: Clock
) -> Sample:
    recorder = Recorder(prompt.id, prompt.category, due_s)
    try:
        async with door.stream(prompt, options) as deltas:
            async for delta in deltas:
                recorder.take(delta, clock())
    except PilotfishError as error:
        return recorder.failed(error_line(error), clock())
    return recorder.sample(clock())


def request_options(cell: Cell, number: int, asking: Asking) -> GenerateOptions:
    """Equal for all legs but for the bound on D: under a seed the text is the same for every D."""
    name = f"{cell.seed}/{number}/{cell.prompts[number].digest}"
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    return {
        "max_tokens": asking.max_tokens,
        "ignore_eos": asking.ignore_eos,
        "temperature": cell.setting.temperature,
        "seed": seed,
        "speculative_n_max": cell.leg.depth,
    }


def load_average() -> float | None:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def _greedy(leg: Leg, max_tokens: int) -> GenerateOptions:
    return {"max_tokens": max_tokens, "temperature": 0.0, "speculative_n_max": leg.depth}


def _warm_prompt(leg: Leg, number: int) -> Prompt:
    text = f"Count from {number} upwards, and then say what {leg.name} may be."
    return Prompt(f"warm-{number}", "warm-up", (("user", text),))
