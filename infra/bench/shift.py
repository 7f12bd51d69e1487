"""A workload that shifts, for real: the policy beside standard decode and every fixed choice.

    python infra/bench/shift.py --prompts valid.jsonl [--repeats 5] [--rounds 150]
        [--phases copy:1 code:4 chat:12 copy:4] [--out FILE]

Engines as they serve (native executor, prefix cache), each in a process of its own, without a
gateway; those that do not write wait. Phases of traffic follow one another (copying, code, chat,
copying again, each with its number of clients); in each, every leg writes the same requests to the
end, all in turn a few steps at a time, so that what the machine does meanwhile falls on all alike.
A leg's engine lives through all phases and repeats: what it has learnt of one phase it has to
unlearn in the next. Standard decode is there twice, and ratios are to both together: what the
second differs from them by is what processes that do the same differ by. Some processes take 5%
longer for forwards of 12 rows as long as they live, whatever they decode with; so before anything
is measured all legs write without drafts, and those slower than the others by 2% are started anew.
Counted are steps in which every client writes and no prompt is read. Greedy, and all legs write the
same tokens.

prompts: JSON lines of {"prompt": …, "category": …}.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import multiprocessing
import os
import platform
import signal
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch

from actors.drafters.config import DrafterConfig
from actors.engine.core import Engine
from actors.engine.options import EngineOptions, Mechanism
from actors.engine.sequence import EngineRequest
from actors.engine.service import EngineService
from actors.sampling.params import SamplingParams
from cluster.gateway.loading import load_tokenizer
from cluster.models.paths import cache_root
from cluster.models.resolve import resolve
from policies.control_ratio import student

Phase = tuple[str, int]  # kind of text, clients
PHASES: tuple[Phase, ...] = (("copy", 1), ("code", 4), ("chat", 12), ("copy", 4))
COPY = "Repeat the following text exactly, word for word, and add nothing:\n\n"
KINDS = {"code": ("coding",), "chat": ("writing", "qa")}
BROKEN = ("useless", "slow", "dead")
AGAIN = "standard, again"
SLICE = 10
"""Steps of one leg before it is another one's turn."""
EARLY = 50
"""Rounds after a shift that are looked at apart."""
PACE = 80
"""Tokens of each of 12 requests that are written without drafts, to see whether processes are
alike;"""
ALIKE = 1.02
"""times the median process's median step: what none may take, or it is started anew,"""
STARTS = 4
"""at most so often."""


@dataclass(frozen=True)
class Leg:
    """methods: of drafters; none is standard decode. fixed: every block is verified whole."""

    name: str
    methods: tuple[str, ...]
    depth: int
    fixed: bool = True


@dataclass
class Span:
    tokens: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds if self.seconds else math.nan


@dataclass
class Run:
    """One leg through one phase. steps_s: of each step that is counted. reasons: how often, of rows
    that were not drafted for."""

    early: Span = field(default_factory=Span)
    later: Span = field(default_factory=Span)
    steps_s: list[float] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def whole(self) -> Span:
        early, later = self.early, self.later
        return Span(early.tokens + later.tokens, early.seconds + later.seconds)


Key = tuple[str, int]  # leg, place of the phase
Texts = dict[str, list[int]]  # output ids by request


def legs_of(options: argparse.Namespace) -> list[Leg]:
    methods = tuple(options.methods)
    legs = [Leg("standard", (), 0), Leg("policy", methods, options.depth, fixed=False)]
    legs += [Leg(f"{m}, D = {d}", (m,), d) for m in methods for d in options.depths]
    legs += [Leg(f"policy, {b}", (b,), options.depth, fixed=False) for b in options.broken]
    return [*legs, Leg(AGAIN, (), 0, fixed=False)]


def drafter_of(method: str, depth: int) -> DrafterConfig:
    if method in BROKEN:
        name = f"broken_drafters:{method.capitalize()}"
        return DrafterConfig("custom_class", name, num_speculative_tokens=depth)
    return DrafterConfig(method, num_speculative_tokens=depth)


def engine_of(leg: Leg, path: str, cache: str) -> Engine:
    ways = [Mechanism(drafter_of(method, leg.depth), "colocated") for method in leg.methods]
    service = EngineService(
        EngineOptions(
            path,
            leg.name,
            max_model_len=1024,
            speculative=ways[0].drafter if ways else None,
            placement="colocated",
            beside=tuple(ways[1:]),
            depth=leg.depth,
            adaptive=not leg.fixed,
            batch_invariant=True,  # nothing is timed before the executor is there
            compile_cache=cache,
        )
    )
    return service.thread.engine


def texts_of(file: Path) -> dict[str, list[str]]:
    records = [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]
    texts = {
        kind: [r["prompt"] for r in records if r["category"] in names]
        for kind, names in KINDS.items()
    }
    texts["copy"] = [COPY + r["prompt"][:700] for r in records if len(r["prompt"]) > 400]
    return texts


def requests_of(
    path: str, texts: Sequence[str], count: int, rounds: int, salt: str, most: int | None = None
) -> list[EngineRequest]:
    """salt: what one repeat has written is nobody's to copy in the next. most: drafted tokens."""
    tokenizer = load_tokenizer(path)
    params = SamplingParams(temperature=0.0, max_tokens=rounds, ignore_eos=True)
    made = []
    for i in range(count):
        turn = [{"role": "user", "content": texts[i % len(texts)]}]
        ids = tokenizer.apply_chat_template(turn, add_generation_prompt=True)["input_ids"]
        request = EngineRequest(f"{salt}-{i}", tuple(ids[:600]), params, cache_salt=salt)
        made.append(replace(request, max_draft_len=most))
    return made


class Writing:
    """A leg on its way through a phase."""

    def __init__(self, engine: Engine, requests: Sequence[EngineRequest]) -> None:
        self.run, self.texts = Run(), Texts({r.request_id: [] for r in requests})
        self._engine, self._clients, self._steps = engine, len(requests), 0
        for request in requests:
            engine.add(request)

    def on(self, steps: int) -> bool:
        """Whether there is more to write after so many steps."""
        for _ in range(steps):
            if not self._engine.has_work:
                break
            self._step()
        return self._engine.has_work

    def _step(self) -> None:
        stats, run = self._engine.stats, self.run
        before = replace(stats)
        full = len(self._engine.scheduler.running) == self._clients
        for event in self._engine.step():
            self.texts[event.request_id].extend(event.tokens)
            if event.reason:
                run.reasons[event.reason] = run.reasons.get(event.reason, 0) + 1
        if not full or stats.prefill_tokens != before.prefill_tokens:
            return
        self._steps += 1
        span = run.early if self._steps <= EARLY else run.later
        span.tokens += stats.tokens - before.tokens
        span.seconds += stats.busy_s - before.busy_s
        run.steps_s.append(stats.busy_s - before.busy_s)


def serve(pipe: Connection, leg: Leg, path: str, cache: str) -> None:
    """A leg's process: begins with the requests it is sent, goes on by as many steps as it is sent
    a number, until it is sent None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    engine = engine_of(leg, path, cache)
    pipe.send(None)
    while (order := pipe.recv()) is not None:
        if not isinstance(order, int):
            writing = Writing(engine, order)
        elif writing.on(order):
            pipe.send(None)
        else:
            pipe.send((writing.run, writing.texts))
    engine.shutdown()


class Legs:
    """All legs' processes; they end with the context."""

    def __init__(self, legs: Sequence[Leg], path: str, cache: str) -> None:
        self._serve = (path, cache)
        self._pipes: dict[str, Connection] = {}
        self._processes: dict[str, SpawnProcess] = {}
        for leg in legs:
            self._start(leg)

    def _start(self, leg: Leg) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, leg, *self._serve), daemon=True)
        process.start()
        self._pipes[leg.name], self._processes[leg.name] = ours, process
        ours.recv()  # one after the other: each profiles a machine that is not loading another

    def _end(self, name: str) -> None:
        self._pipes[name].send(None)
        self._processes[name].join(10)

    def even(self, legs: Sequence[Leg], texts: Sequence[str]) -> None:
        """Start those anew whose forwards take longer than others'."""
        for start in range(STARTS):
            requests = requests_of(self._serve[0], texts, 12, PACE, f"pace {start}", most=0)
            paces_s = {
                name: statistics.median(run.steps_s)
                for name, run, _ in self.write([*self._pipes], requests)
            }
            most_s = ALIKE * statistics.median(paces_s.values())
            slow = [leg for leg in legs if paces_s[leg.name] > most_s]
            if not slow:
                return
            for leg in slow:
                beyond = paces_s[leg.name] / most_s * ALIKE - 1.0
                print(f"{leg.name}: steps of {beyond:+.1%} without drafts, anew", flush=True)
                self._end(leg.name)
                self._start(leg)

    def write(
        self, names: Sequence[str], requests: Sequence[EngineRequest]
    ) -> Iterator[tuple[str, Run, Texts]]:
        """A phase, each leg as soon as it has ended."""
        for name in names:
            self._pipes[name].send(list(requests))
        going = list(names)
        while going:
            for name in tuple(going):
                self._pipes[name].send(SLICE)
                ended: tuple[Run, Texts] | None = self._pipes[name].recv()
                if ended is not None:
                    going.remove(name)
                    yield name, *ended

    def __enter__(self) -> Legs:
        return self

    def __exit__(self, *error: object) -> None:
        for name in self._pipes:
            self._end(name)


def measure(options: argparse.Namespace, legs: Sequence[Leg]) -> Iterator[tuple[Key, Run]]:
    path = str(resolve(options.model))
    texts = texts_of(options.prompts)
    together = options.restart or options.repeats
    for start in range(0, options.repeats, together):
        with Legs(legs, path, options.compile_cache) as processes:
            processes.even(legs, texts["chat"])
            for repeat in range(start, min(start + together, options.repeats)):
                yield from repeated(options, legs, processes, path, texts, repeat)


def repeated(
    options: argparse.Namespace,
    legs: Sequence[Leg],
    processes: Legs,
    path: str,
    texts: dict[str, list[str]],
    repeat: int,
) -> Iterator[tuple[Key, Run]]:
    for place, (kind, clients) in enumerate(options.phases):
        first = (repeat * clients) % len(texts[kind])
        turned = texts[kind][first:] + texts[kind][:first]
        requests = requests_of(path, turned, clients, options.rounds, f"{repeat}.{place}")
        turn = (repeat + place) % len(legs)
        names = [leg.name for leg in [*legs[turn:], *legs[:turn]]]
        expected: Texts = {}
        for name, run, written in processes.write(names, requests):
            expected = expected or written
            if written != expected:
                raise SystemExit(f"{name} wrote another text in phase {place}")
            print(f"{repeat} {place} {name}: {run.whole.rate:.1f}", flush=True)
            yield (name, place), run


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Of pairs of one repeat each: the mean ratio with Student's 95% interval. A repeat whose text
    was over too soon has no rate."""
    logs = [math.log(a / b) for a, b in zip(ours, theirs, strict=True) if a * b > 0]
    if not logs:
        return ""
    mean = statistics.fmean(logs)
    if len(logs) < 3:
        return f"{math.exp(mean):.3f}"
    wide = student(1.96, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.3f} [{math.exp(mean - wide):.3f}, {math.exp(mean + wide):.3f}]"


def report(options: argparse.Namespace, legs: Sequence[Leg], runs: dict[Key, list[Run]]) -> str:
    names = [leg.name for leg in legs]
    statics = [leg.name for leg in legs if leg.fixed]
    phases = [f"{kind}, {clients}" for kind, clients in options.phases]
    places = range(len(phases))
    lines = [
        "# A workload that shifts, for real",
        "",
        f"`python infra/bench/shift.py --prompts {options.prompts.name} --repeats "
        f"{options.repeats} --restart {options.restart} --rounds {options.rounds} "
        f"--methods {' '.join(options.methods)} "
        f"--depths {' '.join(map(str, options.depths))} --depth {options.depth} "
        f"--broken {' '.join(options.broken)} "
        f"--phases {' '.join(f'{kind}:{clients}' for kind, clients in options.phases)}` on "
        f"{datetime.date.today().isoformat()}, {platform.machine()}, {os.cpu_count()} cores, "
        f"torch {torch.__version__}, {options.model}.",
        "",
        "Tokens a second of steps without prompts, medians over repeats; phases and their clients.",
        "",
        "| leg | " + " | ".join(phases) + " | all phases |",
        "| --- |" + " ---: |" * (len(phases) + 1),
    ]
    for name in names:
        rates = [[r.whole.rate for r in runs[name, place]] for place in places]
        medians = [f"{statistics.median(rate):.1f}" for rate in rates]
        lines.append(f"| {name} | " + " | ".join(medians) + f" | {_over(runs, name):.1f} |")
    lines += ["", "| the policy against | " + " | ".join(phases) + " |"]
    lines.append("| --- |" + " --- |" * len(phases))
    for label, part in (("", "whole"), (", first 50 rounds", "early"), (", later", "later")):
        for against in ("standard", "the best fixed"):
            cells = [_cell(runs, statics, place, part, against) for place in places]
            lines.append(f"| {against}{label} | " + " | ".join(cells) + " |")
    lines += ["", "| against standard | " + " | ".join(phases) + " |"]
    lines.append("| --- |" + " --- |" * len(phases))
    for name in names:
        if name != "standard":
            cells = [ratio(*_pair(runs, name, place)) for place in places]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _pair(runs: dict[Key, list[Run]], name: str, place: int) -> tuple[list[float], list[float]]:
    return [run.whole.rate for run in runs[name, place]], _standard(runs, place, "whole")


def _standard(runs: dict[Key, list[Run]], place: int, part: str) -> list[float]:
    """Rates of standard decode: of its two processes together."""
    one, other = ([getattr(r, part).rate for r in runs[n, place]] for n in ("standard", AGAIN))
    return [2.0 / (1.0 / a + 1.0 / b) for a, b in zip(one, other, strict=True)]


def _over(runs: dict[Key, list[Run]], name: str) -> float:
    """Each phase's tokens over its time, all phases of equal length in time at standard decode."""
    shares, places = [], sorted({place for _, place in runs})
    for place in places:
        plain = statistics.median(r.whole.rate for r in runs["standard", place])
        shares.append(plain / statistics.median(r.whole.rate for r in runs[name, place]))
    rates = [statistics.median(r.whole.rate for r in runs["standard", p]) for p in places]
    return statistics.fmean(rates) * len(shares) / sum(shares)


def _cell(
    runs: dict[Key, list[Run]], statics: Sequence[str], place: int, part: str, against: str
) -> str:
    def rates(name: str) -> list[float]:
        return [getattr(run, part).rate for run in runs[name, place]]

    ours = rates("policy")
    if against == "standard":
        return ratio(ours, _standard(runs, place, part))
    best = max(statics, key=lambda name: statistics.median(rates(name)))
    return f"{ratio(ours, rates(best))} ({best})"


def phase(text: str) -> Phase:
    kind, _, clients = text.partition(":")
    if kind not in ("copy", *KINDS) or not clients.isdecimal() or int(clients) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no phase: one of copy, code, chat, then :4")
    return kind, int(clients)


def main() -> None:
    parser = argparse.ArgumentParser(description="The policy on a workload that shifts.")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--restart",
        type=int,
        default=0,
        help="repeats before all processes begin anew, so that none's luck stays; 0: never",
    )
    parser.add_argument("--phases", nargs="+", type=phase, default=PHASES, metavar="KIND:CLIENTS")
    parser.add_argument("--rounds", type=int, default=150, help="tokens of each request")
    parser.add_argument("--methods", nargs="+", default=["suffix"])
    parser.add_argument("--depths", type=int, nargs="*", default=[2, 4, 8], help="of fixed choices")
    parser.add_argument("--depth", type=int, default=8, help="the policy's most")
    parser.add_argument("--broken", nargs="*", choices=BROKEN, default=[])
    parser.add_argument("--compile-cache", default=str(cache_root() / "compiled"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    legs = legs_of(options)
    runs: dict[Key, list[Run]] = defaultdict(list)
    for key, run in measure(options, legs):
        runs[key].append(run)
    text = report(options, legs, runs)
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
