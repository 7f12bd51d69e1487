"""What every peer is asked, and the record of what it did. Runs in each peer's own environment,
so it needs the standard library alone.

    one client      each prompt by itself; tokens after the first over the seconds they took
    all at once     every prompt sent together; all output tokens over the wall clock
    first token     long prompts by themselves; seconds to the first token
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass
class Answer:
    """Token ids, and when they came: seconds since the request was made, tokens until then."""

    ids: list[int] = field(default_factory=list)
    events: list[tuple[float, int]] = field(default_factory=list)

    def add(self, at_s: float, ids: Sequence[int]) -> None:
        if ids:
            self.ids.extend(ids)
            self.events.append((at_s, len(self.ids)))

    @property
    def first_s(self) -> float:
        return self.events[0][0]

    @property
    def decode(self) -> tuple[int, float]:
        """Tokens after the first event, and the seconds they took."""
        (first_s, first), (last_s, last) = self.events[0], self.events[-1]
        return last - first, last_s - first_s


class Engine(Protocol):
    """A peer. together: whether it decodes several requests at once."""

    together: bool

    def run(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[Answer]:
        """Greedy answers to all prompts, started now; an answer ends at an end-of-text token."""
        ...


@dataclass(frozen=True)
class Work:
    """prompts: token ids. long_prompts: length -> prompts of that length, all different."""

    model: str
    gguf: str
    eos_ids: tuple[int, ...]
    max_tokens: int
    max_model_len: int
    threads: int
    prompts: tuple[tuple[int, ...], ...]
    long_prompts: dict[int, tuple[tuple[int, ...], ...]]

    @classmethod
    def load(cls, path: Path) -> Work:
        document = json.loads(path.read_text("utf-8"))
        document["prompts"] = tuple(map(tuple, document["prompts"]))
        document["eos_ids"] = tuple(document["eos_ids"])
        document["long_prompts"] = {
            int(length): tuple(map(tuple, prompts))
            for length, prompts in document["long_prompts"].items()
        }
        return cls(**document)


def measure(engine: Engine, work: Work) -> dict[str, Any]:
    """The figures of one peer; the warm-up is in none of them."""
    _warm(engine, work)
    alone = [engine.run([prompt], work.max_tokens)[0] for prompt in work.prompts]
    tokens, seconds = (sum(parts) for parts in zip(*(a.decode for a in alone), strict=True))
    figures: dict[str, Any] = {
        "decode_tokens_per_s": tokens / seconds if seconds else None,
        "one_client_tokens": sum(len(a.ids) for a in alone),
        "together_tokens_per_s": None,
        "first_token_s": {},
        "answers": [a.ids for a in alone],
    }
    if engine.together:
        began = time.perf_counter()
        answers = engine.run(work.prompts, work.max_tokens)
        wall_s = time.perf_counter() - began
        figures["together_tokens_per_s"] = sum(len(a.ids) for a in answers) / wall_s
    for length, prompts in work.long_prompts.items():
        firsts = [engine.run([prompt], 2)[0].first_s for prompt in prompts]
        figures["first_token_s"][str(length)] = statistics.median(firsts)
    return figures


def _warm(engine: Engine, work: Work) -> None:
    """A request alone, and where there will be a crowd a short crowd, with prompts that are no
    prefix of the workload's."""
    lines = [list(reversed(prompt))[:64] for prompt in work.prompts]
    engine.run(lines[:1], 16)
    if engine.together:
        engine.run(lines, 8)
    for prompts in list(work.long_prompts.values())[:1]:
        engine.run([list(reversed(prompts[0]))], 2)


def main(name: str, build: Callable[[Work, str], tuple[Engine, dict[str, str]]]) -> None:
    """A runner's command line. `build` gives the engine of a variant and its versions."""
    parser = argparse.ArgumentParser(description=f"Measure {name}.")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--variant", default="plain")
    given = parser.parse_args()
    work = Work.load(given.work)
    began = time.perf_counter()
    engine, versions = build(work, given.variant)
    ready_s = time.perf_counter() - began
    busy = os.getloadavg()[0]
    try:
        figures = measure(engine, work)
    finally:
        close = getattr(engine, "close", None)
        if close is not None:
            close()
    record = {
        "peer": name,
        "variant": given.variant,
        "versions": versions,
        "threads": work.threads,
        "ready_s": ready_s,
        "load_average_before": busy,
        **figures,
    }
    draft = given.output.with_suffix(".part")
    draft.write_text(json.dumps(record) + "\n", "utf-8")
    os.replace(draft, given.output)
