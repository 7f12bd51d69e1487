"""Where each microsecond of a round goes outside the model's forward.

    python infra/bench/round.py [--model smollm2] [--sessions 1 8 32] [--tokens 64] [--out FILE]

The engine as it serves (native executor where it can be had, adaptive draft length), without a
gateway, each leg in a process of its own (the first engine of a process has the large pages):
standard decode, a suffix drafter in the same thread, and the same one behind its server in another
process, over loopback. Counted are steps in which every session writes and no prompt is read.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from actors.drafters.config import DrafterConfig
from actors.drafters.table import build_drafter
from actors.engine import verdicts
from actors.engine.core import Engine
from actors.engine.events import EngineStats
from actors.engine.options import EngineOptions
from actors.engine.sequence import EngineRequest
from actors.engine.service import EngineService
from actors.exchange.link import Endpoint
from actors.exchange.pool import RemotePort
from actors.exchange.server import DraftingServer
from actors.sampling.params import SamplingParams
from cluster.demo.dataset import load
from cluster.gateway.loading import load_tokenizer
from cluster.models.paths import cache_root
from cluster.models.resolve import resolve

LEGS = ("standard", "colocated", "remote")
DRAFTER = DrafterConfig("suffix", num_speculative_tokens=4)
PARTS = (
    ("forward", "forward"),
    ("wait", "waiting, or drafting here"),
    ("gather", "rest of gathering"),
    ("tell", "telling drafters"),
    ("choose", "choosing rows"),
    ("schedule", "scheduling"),
    ("pack", "packing"),
    ("sample", "choosing tokens"),
    ("rest", "rest"),
)


@dataclass
class Split:
    """Seconds of the steps that count, by part."""

    steps: int = 0
    tokens: int = 0
    rows: int = 0
    step_s: float = 0.0
    parts: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


class Watch:
    """Seconds inside the calls it wraps, by name; none of them calls another."""

    def __init__(self, engine: Engine) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._wrapped: list[tuple[Any, str, Callable[..., Any]]] = []
        self._wrap(engine.port, "gather", "gather")
        for name in ("open", "commit", "close"):
            self._wrap(engine.port, name, "tell")
        for name in ("admit", "compose", "publish"):
            self._wrap(engine.scheduler, name, "schedule")
        if engine.speculation is not None:
            for name in ("worth", "heard", "select", "hopeless", "ask", "settle", "observe"):
                self._wrap(engine.speculation, name, "choose")
        self._wrap(verdicts, "pack", "pack")

    def _wrap(self, owner: Any, name: str, part: str) -> None:
        call: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **keywords: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **keywords)
            finally:
                self.seconds[part] += time.perf_counter() - began

        self._wrapped.append((owner, name, call))
        setattr(owner, name, timed)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        for owner, name, call in self._wrapped:
            setattr(owner, name, call)


def measure(engine: Engine, watch: Watch, requests: list[EngineRequest]) -> Split:
    split = Split()
    for request in requests:
        engine.add(request)
    while engine.has_work:
        before, parts = replace(engine.stats), dict(watch.seconds)
        running = len(engine.scheduler.running)
        engine.step()
        if engine.stats.prefill_tokens == before.prefill_tokens and running == len(requests):
            _add(split, before, engine.stats, parts, watch.seconds)
    return split


def _add(
    split: Split,
    before: EngineStats,
    after: EngineStats,
    parts: dict[str, float],
    seconds: dict[str, float],
) -> None:
    step_s = after.busy_s - before.busy_s
    took = {part: seconds[part] - parts.get(part, 0.0) for part in seconds}
    took["forward"] = after.forward_s - before.forward_s
    took["sample"] = after.sample_s - before.sample_s
    took["wait"] = after.wait_s - before.wait_s
    took["gather"] -= took["wait"]
    took["rest"] = step_s - sum(took.values())
    for part, part_s in took.items():
        split.parts[part] += part_s
    split.steps += 1
    split.step_s += step_s
    split.tokens += after.tokens - before.tokens
    split.rows += after.drafted - before.drafted


def serve(pipe: Connection) -> None:
    torch.set_num_threads(1)
    server = DraftingServer(build_drafter(DRAFTER), name="d0")
    pipe.send(server.start())
    pipe.recv()
    server.stop(0.5)


@contextmanager
def engine_of(leg: str, path: str, cache: str) -> Iterator[Engine]:
    """An engine with its drafter up; both end with the context."""
    service = EngineService(
        EngineOptions(
            path,
            "bench",
            max_model_len=2048,
            speculative=None if leg == "standard" else DRAFTER,
            placement="remote" if leg == "remote" else "colocated",
            depth=0 if leg == "standard" else DRAFTER.num_speculative_tokens,
            adaptive=leg != "standard",
            batch_invariant=True,  # nothing is timed before the executor is there
            compile_cache=cache,
        )
    )
    engine = service.thread.engine
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True)
    try:
        if isinstance(service.port, RemotePort):
            process.start()
            service.port.set_endpoints([Endpoint("d0", f"127.0.0.1:{ours.recv()}", "suffix")])
            while not service.port.status()[0].up:
                time.sleep(0.01)
        yield engine
    finally:
        engine.shutdown()
        if process.pid is not None:
            ours.send("stop")
            process.join(10)


def requests_of(path: str, count: int, tokens: int) -> list[EngineRequest]:
    tokenizer = load_tokenizer(path)
    prompts = load(None)
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    requests = []
    for i in range(count):
        turn = [{"role": "user", "content": prompts[i % len(prompts)].text}]
        encoded = tokenizer.apply_chat_template(turn, add_generation_prompt=True)
        requests.append(EngineRequest(f"r{i}", tuple(encoded["input_ids"]), params))
    return requests


def walk(pipe: Connection, leg: str, path: str, options: argparse.Namespace) -> None:
    """A leg's process."""
    with engine_of(leg, path, options.compile_cache) as engine, Watch(engine) as watch:
        for count in options.sessions:
            pipe.send(measure(engine, watch, requests_of(path, count, options.tokens)))


def line(leg: str, sessions: int, split: Split) -> str:
    steps = max(split.steps, 1)
    outside = 1.0 - split.parts["forward"] / split.step_s if split.step_s else 0.0
    cells = [f"{split.parts[part] / steps * 1e6:.0f}" for part, _ in PARTS]
    rates = f"{split.rows / steps:.1f} | {split.tokens / steps:.1f}"
    return (
        f"| {sessions} | {leg} | {split.step_s / steps * 1e6:.0f} | {' | '.join(cells)} "
        f"| {outside:.1%} | {rates} |"
    )


def report(options: argparse.Namespace) -> str:
    sessions = " ".join(map(str, options.sessions))
    heads = ["sessions", "drafter", "step", *(head for _, head in PARTS)]
    heads += ["outside the forward", "drafted rows", "tokens"]
    lines = [
        "# Where a round's time goes outside the forward",
        "",
        "Microseconds a step; drafted rows and tokens are a step's, of all sessions together.",
        "",
        f"- Command: `python infra/bench/round.py --model {options.model} --sessions {sessions} "
        f"--tokens {options.tokens} --legs {' '.join(options.legs)}`",
        f"- {datetime.date.today().isoformat()}, {platform.machine()}, "
        f"{multiprocessing.cpu_count()} cores, torch {torch.__version__}, load average before: "
        f"{os.getloadavg()[0]:.1f}",
        "",
        f"| {' | '.join(heads)} |",
        "| ---: | --- |" + " ---: |" * (len(heads) - 2),
    ]
    path = str(resolve(options.model))
    context = multiprocessing.get_context("spawn")
    for leg in options.legs:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=walk, args=(theirs, leg, path, options))
        process.start()
        theirs.close()  # else its death would not end the wait below
        for count in options.sessions:
            try:
                split = ours.recv()
            except EOFError:
                raise SystemExit(f"error: the process of {leg} ended; it has said why") from None
            lines.append(line(leg, count, split))
            print(lines[-1], flush=True)
        process.join()
    lines += ["", f"Load average after: {os.getloadavg()[0]:.1f}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Where a round's time goes.")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--legs", nargs="+", choices=LEGS, default=list(LEGS))
    parser.add_argument("--compile-cache", default=str(cache_root() / "compiled"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    text = report(options)
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
