"""A long prompt beside running streams: what a drafter costs its first token, and the streams.

    python infra/bench/long_prompt.py [--tokens 7500] [--rounds 2] [--mechanism eagle3]

Three engines as they serve (native executor, adaptive draft length), each in a process of its own
and all of them up from the start: standard decode, the shipped drafter in the engine's process, and
the same one behind its server in another process, which features reach chunk by chunk. They take
turns; a turn is two short streams that run, then one long prompt and its first tokens. The gateway
is left out: it is the same for all.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from multiprocessing.connection import Connection
from typing import Any

import torch

LEGS = ("standard", "colocated", "remote")
STREAMS, WARM_TOKENS, AFTER = 2, 24, 24
CONTEXT = 8192
BAR = 1.05
"""The most that a drafter may add to the time to the first token, as a factor."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Seconds. ttft_s: of the long prompt, from its arrival in the engine. quiet_s, beside_s: of
    the streams, between the steps that bring tokens, before it came and until its first token.
    cold: rounds that it then ran at D = 0 because the drafter was still reading. drafted: whether
    a block of it was verified in its first tokens."""

    ttft_s: float
    quiet_s: tuple[float, ...]
    beside_s: tuple[float, ...]
    cold: int
    drafted: bool


class Clock:
    """When each request's tokens came."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.at: dict[str, list[float]] = {}
        self.events: dict[str, list[Any]] = {}

    def step(self) -> None:
        events = self.engine.step()
        now_s = time.perf_counter()
        for event in events:
            if event.error is not None:
                raise event.error
            if event.tokens:
                self.at.setdefault(event.request_id, []).append(now_s)
                self.events.setdefault(event.request_id, []).append(event)

    def gaps(self, names: Sequence[str], start_s: float, stop_s: float) -> tuple[float, ...]:
        """Between tokens of a stream, where the later one came in that time."""
        return tuple(
            later - earlier
            for name in names
            for earlier, later in zip(self.at[name], self.at[name][1:], strict=False)
            if start_s < later <= stop_s
        )


def measure(engine: Any, prompt: Sequence[int], streams: Sequence[Sequence[int]]) -> Turn:
    from actors.engine.sequence import EngineRequest
    from actors.sampling.params import SamplingParams

    clock = Clock(engine)
    forever = SamplingParams(temperature=0.0, max_tokens=4096, ignore_eos=True)
    names = [f"stream-{i}" for i in range(len(streams))]
    for name, ids in zip(names, streams, strict=True):
        engine.add(EngineRequest(name, tuple(ids), forever))
    while any(len(clock.at.get(name, ())) < WARM_TOKENS for name in names):
        clock.step()
    began_s = time.perf_counter()
    quiet = clock.gaps(names, clock.at[names[0]][WARM_TOKENS // 3], began_s)
    engine.add(EngineRequest("long", tuple(prompt), replace(forever, max_tokens=AFTER)))
    while "long" not in clock.at:
        clock.step()
    first_s = clock.at["long"][0]
    while "long" in engine.sequences:
        clock.step()
    for name in names:
        engine.abort(name)
    rest = clock.events["long"][1:]
    return Turn(
        first_s - began_s,
        quiet,
        clock.gaps(names, began_s, first_s),
        sum(event.reason == "cold" for event in rest),
        any(event.drafted for event in rest),
    )


def serve(pipe: Connection, config: Any, compat: Any) -> None:
    from actors.drafters.table import build_drafter
    from actors.exchange.server import DraftingServer

    torch.set_num_threads(1)
    server = DraftingServer(build_drafter(config), name="d0", compat=compat)
    pipe.send(server.start())
    pipe.recv()
    server.stop(0.5)


@contextmanager
def engine_of(leg: str, path: str, mechanism: str, threads: int) -> Iterator[Any]:
    """An engine with its drafter up; both end with the context."""
    from actors.drafters.config import DrafterConfig
    from actors.drafters.learned.load import feature_taps
    from actors.engine.options import EngineOptions
    from actors.engine.service import EngineService
    from actors.exchange.compat import Compat
    from actors.exchange.link import Endpoint
    from actors.exchange.pool import RemotePort
    from cluster.models.paths import cache_root

    cache = str(cache_root() / "compiled")
    drafter = DrafterConfig(
        mechanism,
        num_speculative_tokens=3,
        feature_format="auto",
        target=path,
        target_tokenizer=path,
        max_context=CONTEXT,
        threads=1 if leg == "remote" else threads,
        compile_cache=cache,
    )
    plain = leg == "standard"
    service = EngineService(
        EngineOptions(
            path,
            "bench",
            threads=threads,
            max_model_len=CONTEXT,
            kv_cache_memory_bytes=700 * 2**20,
            speculative=None if plain else drafter,
            taps=feature_taps(drafter) if leg == "remote" else (),
            placement="remote" if leg == "remote" else "colocated",
            depth=0 if plain else drafter.num_speculative_tokens,
            adaptive=not plain,
            batch_invariant=True,  # nothing is timed before the executor is there
            compile_cache=cache,
        )
    )
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    own = Compat(taps=feature_taps(drafter))
    process = context.Process(target=serve, args=(theirs, drafter, own), daemon=True)
    try:
        if isinstance(service.port, RemotePort):
            process.start()
            service.port.set_endpoints([Endpoint("d0", f"127.0.0.1:{ours.recv()}", mechanism)])
            while not service.port.status()[0].up:
                time.sleep(0.01)
        yield service.thread.engine
    finally:
        service.thread.engine.shutdown()
        if process.pid is not None:
            ours.send("stop")
            process.join(10)


def run_leg(pipe: Connection, leg: str, path: str, options: argparse.Namespace) -> None:
    """One engine's process: a turn whenever it is asked for one, until it is told None."""
    ids = text_ids(path, options.tokens)
    with engine_of(leg, path, options.mechanism, options.threads) as engine:
        pipe.send("ready")
        while (turn := pipe.recv()) is not None:
            shift = 131 * (turn + 1)  # so that no prefix of an earlier turn is met again
            long = [*ids[shift:], *ids[:shift]]
            streams = [ids[shift + 40 * i : shift + 40 * i + 64] for i in range(STREAMS)]
            pipe.send(measure(engine, long, streams))


def text_ids(path: str, tokens: int) -> list[int]:
    """That many tokens of the demo's prompts, one after the other and over again."""
    from cluster.demo.dataset import load
    from cluster.gateway.loading import load_tokenizer

    tokenizer = load_tokenizer(path)
    ids: list[int] = []
    while len(ids) < tokens:
        for prompt in load(None):
            ids += tokenizer(f"{len(ids)}. {prompt.text}\n\n")["input_ids"]
    return ids[:tokens]


def rounds(path: str, options: argparse.Namespace) -> dict[str, list[Turn]]:
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    processes = []
    found: dict[str, list[Turn]] = {leg: [] for leg in LEGS}
    try:
        for leg in LEGS:
            pipes[leg], theirs = context.Pipe()
            process = context.Process(target=run_leg, args=(theirs, leg, path, options))
            process.start()
            processes.append(process)
            theirs.close()
            pipes[leg].recv()  # one loads at a time; EOFError where it could not
        for turn in range(options.rounds):
            for leg in LEGS if turn % 2 == 0 else reversed(LEGS):
                pipes[leg].send(turn)
                found[leg].append(pipes[leg].recv())
                print(leg, f"{found[leg][-1].ttft_s:.2f} s", flush=True)
    finally:
        for pipe in pipes.values():
            with suppress(OSError):  # it may have ended
                pipe.send(None)
        for process in processes:
            process.join(30)
            if process.is_alive():
                process.kill()
    return found


def report(found: dict[str, list[Turn]], options: argparse.Namespace) -> list[str]:
    heads = [
        "leg",
        "TTFT, s",
        "over standard, turn by turn",
        "ITL before, ms",
        "beside: p50",
        "p95",
        "worst",
        "cold rounds",
        "drafts used",
    ]
    lines = [
        "## A long prompt beside two streams",
        "",
        f"`python infra/bench/long_prompt.py --tokens {options.tokens} --rounds {options.rounds} "
        f"--mechanism {options.mechanism} --threads {options.threads}` on "
        f"{datetime.date.today()}, torch {metadata.version('torch')}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}. Medians over turns; gaps of all streams and turns together.",
        "",
        f"| {' | '.join(heads)} |",
        "| --- |" + " ---: |" * (len(heads) - 1),
    ]
    for leg in LEGS:
        turns = found[leg]
        pairs = zip(turns, found["standard"], strict=True)
        over = [turn.ttft_s / base.ttft_s for turn, base in pairs]
        beside = sorted(gap for turn in turns for gap in turn.beside_s)
        quiet = [gap for turn in turns for gap in turn.quiet_s]
        cells = [
            f"{statistics.median(turn.ttft_s for turn in turns):.2f}",
            f"{statistics.median(over):.3f} ({', '.join(f'{r:.3f}' for r in over)})",
            f"{statistics.median(quiet) * 1e3:.0f}",
            *(f"{beside[int(q * (len(beside) - 1))] * 1e3:.0f}" for q in (0.5, 0.95, 1.0)),
            f"{statistics.median(turn.cold for turn in turns):.0f}",
            f"{sum(turn.drafted for turn in turns)} of {len(turns)}",
        ]
        lines.append(f"| {leg} | {' | '.join(cells)} |")
    return [*lines, "", f"The bar for the first token is {BAR} of standard decode."]


def main() -> None:
    from cluster.models.resolve import resolve

    parser = argparse.ArgumentParser(description="A long prompt beside running streams.")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--mechanism", default="eagle3")
    parser.add_argument("--tokens", type=int, default=7500)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    print("\n".join(report(rounds(str(resolve(options.model)), options), options)))


if __name__ == "__main__":
    main()
