"""Servers that answer from a script, on a clock of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from cluster.bench.attempt import Attempt
from cluster.bench.dataset import Prompt
from cluster.bench.legs import Leg
from cluster.bench.loads import Load
from cluster.bench.positions import Counts
from cluster.bench.sample import Event, Sample
from cluster.bench.schedule import Cell, Setting
from cluster.sighting import Sighting
from pilotfish import Delta, GenerateOptions, Speculation, UnavailableError, Usage

REMOTE = Leg("suffix:4@remote", "suffix", None, "remote", 4)
COLOCATED = Leg("suffix:4@colocated", "suffix", None, "colocated", 4)
STANDARD = Leg("standard")
SETTING = Setting(0.0, Load(clients=1))


def make_prompt(text: str, category: str = "qa") -> Prompt:
    return Prompt(text, category, (("user", text),))


@dataclass
class FakeDoor:
    """Writes `tokens` tokens an answer. Every round but the first accepts what `accepts` says for
    the n-th time that this prompt is asked; a second passes with each delta."""

    tokens: int = 9
    first_accepts: int = 0
    later_accepts: int = 3
    remote: bool = True
    fail: bool = False
    seen: Sighting = field(default_factory=lambda: Sighting((1,), (2,), links_up=1))
    asked: list[tuple[str, GenerateOptions]] = field(default_factory=list)
    now_s: float = 0.0

    def clock(self) -> float:
        return self.now_s

    @asynccontextmanager
    async def stream(
        self, prompt: Prompt, options: GenerateOptions
    ) -> AsyncIterator[AsyncIterator[Delta]]:
        times = sum(id == prompt.id for id, _ in self.asked)
        self.asked.append((prompt.id, options))
        yield self._deltas(options, self.later_accepts if times else self.first_accepts)

    async def _deltas(self, options: GenerateOptions, accepts: int) -> AsyncIterator[Delta]:
        if self.fail:
            raise UnavailableError("gone", code="UNAVAILABLE")
        depth = options["speculative_n_max"]
        accepts = min(accepts, depth)
        sent = rounds = accepted = 0
        while sent < self.tokens:
            self.now_s += 1.0
            taken = min(accepts if sent else 0, self.tokens - sent - 1)
            rounds += bool(sent and depth)
            accepted += taken
            new = taken + 1
            ids = tuple(range(sent, sent + new))
            sent += new
            last = sent >= self.tokens
            yield Delta(
                "x" * new,
                ids,
                accepted=taken,
                finish_reason="length" if last else None,
                usage=Usage(7, sent) if last else None,
                speculation=Speculation(
                    rounds, rounds * depth, accepted, accepted if self.remote else 0
                )
                if last
                else None,
            )
        self.seen = replace(
            self.seen, received=self.seen.received + rounds, steps=self.seen.steps + rounds + 1
        )

    async def sight(self) -> Sighting:
        return self.seen

    async def positions(self) -> Counts:
        return {}


def make_sample(
    stamps: list[tuple[float, int, int]],
    *,
    prompt: str = "p",
    category: str = "qa",
    **changes: object,
) -> Sample:
    """A sample from (at_s, tokens, accepted) of its deltas; due at 0."""
    events = tuple(Event(*stamp) for stamp in stamps)
    accepted = sum(event.accepted for event in events)
    sample = Sample(
        prompt=prompt,
        category=category,
        due_s=0.0,
        end_s=events[-1].at_s if events else 0.0,
        events=events,
        drafted=accepted + 1 if accepted else 0,
        accepted=accepted,
        remote_accepted=accepted,
    )
    return replace(sample, **changes)


def make_attempt(leg: Leg, samples: list[Sample], *, run: int = 0, **changes: object) -> Attempt:
    prompts = tuple(make_prompt(sample.prompt) for sample in samples)
    attempt = Attempt(
        cell=Cell(leg, SETTING, run, prompts, seed=run),
        began_s=0.0,
        ended_s=max(sample.end_s for sample in samples),
        samples=tuple(samples),
        before=Sighting((1,), (2,), 1),
        after=Sighting((1,), (2,), 1, received=1),
        positions={},
        repeated=0,
        refused=None,
        busy=0.1,
    )
    return replace(attempt, **changes)
