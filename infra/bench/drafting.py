"""What a block of a learned drafter costs on a CPU: alone, and in the engine's own process, where
the target's weights have just passed through the caches and its threads are about.

    python infra/bench/drafting.py [--drafters eagle3 mtp] [--sessions 1 4] [--depths 1 2 3 4]

Milliseconds of a block of all sessions together, and of the engine's whole step: medians over texts
whose lengths take turns. CPU is of all threads of the process, and means something on a busy
machine too. Alone a call takes two committed tokens of each session, which it has to absorb before
it drafts; in the engine greedy requests write, and D = 0 is standard decode.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from actors.contracts import (
    Commit,
    Drafter,
    DraftRequest,
    Gathered,
    OpenSession,
    SessionKey,
)
from actors.drafters.config import DrafterConfig
from actors.drafters.shipped import catalogue
from actors.drafters.table import build_drafter
from actors.engine.core import Engine
from actors.engine.options import EngineOptions
from actors.engine.sequence import EngineRequest
from actors.engine.service import EngineService
from actors.sampling.params import SamplingParams
from cluster.models.paths import cache_root
from cluster.models.resolve import resolve

GREEDY = SamplingParams(temperature=0.0)
PROMPT = 200


@dataclass
class Times:
    """Milliseconds of blocks, wall and CPU, and of the steps around them."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)
    step_cpu: list[float] = field(default_factory=list)

    def cells(self) -> str:
        parts = (self.wall, self.cpu, self.step, self.step_cpu)
        return " | ".join(f"{statistics.median(p):.2f}" if p else "" for p in parts)


class Alone:
    """A drafter with sessions that go on by two tokens a round, whatever it drafts."""

    def __init__(self, drafter: Drafter, sessions: int) -> None:
        self._drafter, self._width = drafter, int(drafter.feature_dim)  # type: ignore[attr-defined]
        self._lengths = {SessionKey("bench", f"r{i}"): PROMPT for i in range(sessions)}
        self._turn = 0
        drafter.open(
            [
                OpenSession(key, tuple(range(3, 3 + n)), GREEDY, features=self._rows(n - 1))
                for key, n in self._lengths.items()
            ]
        )
        while any(p.cold for p in self._drafter.propose(self._asks(1))):
            pass

    def _rows(self, count: int) -> torch.Tensor:
        made = torch.Generator().manual_seed(count)
        return torch.randn(count, self._width, generator=made).to(torch.bfloat16)

    def _asks(self, depth: int) -> list[DraftRequest]:
        return [DraftRequest(key, depth) for key in self._lengths]

    def round(self, depth: int, times: Times) -> None:
        commits = []
        self._turn += 1
        for key, length in self._lengths.items():
            commits.append(Commit(key, 0, length, (7 + self._turn % 40, 11), self._rows(2)))
            self._lengths[key] = length + 2
        began = _now()
        self._drafter.observe(commits)
        self._drafter.propose(self._asks(depth))
        wall, cpu = _since(began)
        times.wall.append(wall)
        times.cpu.append(cpu)

    def close(self) -> None:
        for key in self._lengths:
            self._drafter.close(key)


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(began: tuple[float, float]) -> tuple[float, float]:
    """Milliseconds, wall and CPU."""
    wall, cpu = _now()
    return 1e3 * (wall - began[0]), 1e3 * (cpu - began[1])


def alone(
    config: DrafterConfig, sessions: Sequence[int], depths: Sequence[int], rounds: int
) -> dict[tuple[int, int], Times]:
    drafter = build_drafter(config)
    found: dict[tuple[int, int], Times] = defaultdict(Times)
    for count in sessions:
        bench = Alone(drafter, count)
        for depth in depths:
            bench.round(depth, Times())
        for _ in range(rounds):
            for depth in depths:
                bench.round(depth, found[count, depth])
        bench.close()
    return found


def together(engine: Engine, count: int, depth: int, tokens: int, times: Times) -> None:
    """Requests that all write; steps in which every one of them had a whole block count."""
    engine.plan.snapshot.fallback.depth = depth
    params = replace(GREEDY, max_tokens=tokens, ignore_eos=True)
    for i in range(count):
        prompt = tuple(100 + (17 * i + 7 * j) % 5000 for j in range(PROMPT // 4))
        engine.add(EngineRequest(f"r{i}", prompt, params))
    gather, block = engine.port.gather, (0.0, 0.0)

    def timed(wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
        nonlocal block
        began = _now()
        gathered = gather(wanted, worth_s)
        block = _since(began)
        return gathered

    engine.port.gather = timed  # type: ignore[method-assign]
    while engine.has_work:
        before, running, began = replace(engine.stats), len(engine.sequences), _now()
        engine.step()
        (step, step_cpu), after = _since(began), engine.stats
        whole = after.drafted - before.drafted == count * depth
        if whole and running == count and after.prefill_tokens == before.prefill_tokens:
            for kept, value in zip(
                (times.wall, times.cpu, times.step, times.step_cpu),
                (*block, step, step_cpu),
                strict=True,
            ):
                kept.append(value)
    engine.port.gather = gather  # type: ignore[method-assign]


def in_engine(config: DrafterConfig, options: argparse.Namespace) -> dict[tuple[int, int], Times]:
    """By (sessions, D)."""
    service = EngineService(
        EngineOptions(
            config.target,
            "bench",
            threads=options.threads,
            max_model_len=2048,
            speculative=config,
            placement="colocated",
            batch_invariant=True,  # nothing is timed before the executor is there
            compile_cache=options.compile_cache,
        )
    )
    engine = service.thread.engine
    found: dict[tuple[int, int], Times] = defaultdict(Times)
    for count in options.sessions:
        together(engine, count, max(options.depths), 8, Times())
        for _ in range(options.turns):
            for depth in (0, *options.depths):
                together(engine, count, depth, options.tokens, found[count, depth])
    engine.shutdown()
    return found


def table(found: dict[tuple[int, int], Times], name: str, where: str) -> list[str]:
    return [
        f"| {name} | {where} | {count} | {depth} | {times.cells()} |"
        for (count, depth), times in sorted(found.items())
    ]


def report(options: argparse.Namespace) -> str:
    target = str(resolve(options.model))
    lines = [
        f"{datetime.date.today().isoformat()}, {platform.machine()}, {os.cpu_count()} cores, torch "
        f"{torch.__version__}, {options.threads} threads, load before: {os.getloadavg()[0]:.1f}",
        "",
        "| drafter | where | sessions | D | block | its CPU | step | its CPU |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    shipped = {mechanism: str(folder) for (mechanism, _), folder in catalogue().items()}
    for drafter in options.drafters:
        mechanism, _, folder = drafter.partition("=")
        config = DrafterConfig(
            mechanism,
            model=folder or shipped[mechanism],
            target=target,
            target_tokenizer=target,
            num_speculative_tokens=max(options.depths),
            threads=options.threads,
            compile_cache=options.compile_cache,
        )
        if "alone" in options.where:
            found = alone(config, options.sessions, options.depths, options.rounds)
            lines += table(found, mechanism, "alone")
        if "engine" in options.where:
            lines += table(in_engine(config, options), mechanism, "engine")
        print("\n".join(lines), flush=True)
    return "\n".join([*lines, "", f"Load after: {os.getloadavg()[0]:.1f}."]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="What a block of a learned drafter costs.")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument(
        "--drafters",
        nargs="+",
        default=["eagle3", "mtp", "dspark"],
        help="Mechanisms, of the shipped drafter or of mechanism=FOLDER.",
    )
    parser.add_argument(
        "--where", nargs="+", choices=("alone", "engine"), default=["alone", "engine"]
    )
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=30, help="Calls of each length, alone.")
    parser.add_argument("--turns", type=int, default=3, help="Texts of each length, in the engine.")
    parser.add_argument("--tokens", type=int, default=48, help="Tokens of a text.")
    parser.add_argument("--compile-cache", default=str(cache_root() / "compiled"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    text = report(options)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
