"""One cohort of many kinds of text, one client: legs side by side, request by request.

    python infra/bench/mixed.py --prompts twelve.jsonl [--legs eagle3:3 eagle3:2! suffix:4]

A request's text says little of the next one's here, which is what a policy that learns from the
last blocks has against it. Engines as they serve, without a gateway, each in a process of its own
(`shift.py`); every request is written by one leg after the other, whose turn it is first moves on.
MECHANISM:D is the policy with D at most, MECHANISM:D! always drafts D; standard decode is the
first leg, and the last again. Greedy; a leg that writes another text ends the run. Reading prompts
counts.

prompts: a file that `pilotfish bench` reads.
"""

from __future__ import annotations

import argparse
import datetime
import math
import multiprocessing
import os
import platform
import signal
import statistics
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from shift import AGAIN, Leg, engine_of

from actors.engine.sequence import EngineRequest
from actors.sampling.params import SamplingParams
from cluster.bench.dataset import load
from cluster.gateway.loading import load_tokenizer
from cluster.models.paths import cache_root
from cluster.models.resolve import resolve
from policies.control_ratio import student


@dataclass(frozen=True)
class Written:
    """A request by one leg. seconds: from its arrival to its end; of them, in steps that read no
    prompt, decode_s, with so many tokens and drafts, accepted and not."""

    text: tuple[int, ...]
    seconds: float
    decode_s: float
    tokens: int
    drafted: int
    accepted: int


def leg_of(name: str) -> Leg:
    """Raises ValueError."""
    mechanism, _, depth = name.partition(":")
    always = depth.endswith("!")
    return Leg(name, (mechanism,), int(depth.rstrip("!")), fixed=always)


def serve(pipe: Connection, leg: Leg, path: str, cache: str) -> None:
    """A leg's process: writes the requests it is sent until it is sent None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    engine = engine_of(leg, path, cache)
    pipe.send(None)
    while (request := pipe.recv()) is not None:
        stats = engine.stats
        drafted, accepted = stats.drafted, stats.accepted
        text: list[int] = []
        decode_s, tokens = 0.0, 0
        began = time.perf_counter()
        engine.add(request)
        while engine.has_work:
            read, step = stats.prefill_tokens, time.perf_counter()
            came = [token for event in engine.step() for token in event.tokens]
            if stats.prefill_tokens == read:
                decode_s, tokens = decode_s + time.perf_counter() - step, tokens + len(came)
            text.extend(came)
        took_s = time.perf_counter() - began
        drafted, accepted = stats.drafted - drafted, stats.accepted - accepted
        pipe.send(Written(tuple(text), took_s, decode_s, tokens, drafted, accepted))
    engine.shutdown()


def measure(options: argparse.Namespace, legs: list[Leg]) -> list[list[Written]]:
    """By leg, every round's requests in their order."""
    path = str(resolve(options.model))
    tokenizer = load_tokenizer(path)
    params = SamplingParams(temperature=0.0, max_tokens=options.tokens, ignore_eos=True)
    context = multiprocessing.get_context("spawn")
    pipes = []
    for leg in legs:
        ours, theirs = context.Pipe()
        given = (theirs, leg, path, options.compile_cache)
        context.Process(target=serve, args=given, daemon=True).start()
        ours.recv()  # one after the other: each profiles a machine that is not loading another
        pipes.append(ours)
    found: list[list[Written]] = [[] for _ in legs]
    prompts = load(options.prompts).prompts
    for turn in range(options.rounds * len(prompts)):
        prompt = prompts[turn % len(prompts)]
        chat = [{"role": role, "content": content} for role, content in prompt.messages]
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
        request = EngineRequest(f"r{turn}", tuple(ids), params, cache_salt=f"r{turn}")
        for place in range(len(legs)):
            at = (turn + place) % len(legs)
            pipes[at].send(request)
            found[at].append(pipes[at].recv())
        if len({each[-1].text for each in found}) > 1:
            raise SystemExit(f"request {turn}: not all legs have written the same")
        print(f"{turn} {prompt.category}: {[round(each[-1].seconds, 3) for each in found]}")
    for pipe in pipes:
        pipe.send(None)
    return found


def ratio(ours: list[float], theirs: list[float]) -> str:
    """Of rates in pairs, one a request: the mean with Student's 95% interval."""
    logs = [math.log(b / a) for a, b in zip(ours, theirs, strict=True)]
    mean = statistics.fmean(logs)
    wide = student(1.96, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return f"{math.exp(mean):.3f} [{math.exp(mean - wide):.3f}, {math.exp(mean + wide):.3f}]"


def report(options: argparse.Namespace, legs: list[Leg], found: list[list[Written]]) -> str:
    standard = found[0]
    lines = [
        f"`python infra/bench/mixed.py --prompts {options.prompts.name} --rounds {options.rounds} "
        f"--tokens {options.tokens} --legs {' '.join(options.legs)}` on "
        f"{datetime.date.today().isoformat()}, {platform.machine()}, {os.cpu_count()} cores, torch "
        f"{torch.__version__}, {options.model}. Each request's rate against standard decode's.",
        "",
        "| leg | tok/s | ratio, whole | ratio, decoding | of the first round | drafted | right |",
        "| --- | ---: | --- | --- | --- | ---: | ---: |",
    ]
    first = len(standard) // options.rounds
    for leg, each in zip(legs, found, strict=True):
        rate = sum(len(w.text) for w in each) / sum(w.seconds for w in each)
        whole = [[w.seconds for w in side] for side in (each, standard)]
        decoding = [[w.decode_s / w.tokens for w in side] for side in (each, standard)]
        cells = [ratio(*whole), ratio(*decoding), ratio(*(side[:first] for side in whole))]
        drafted, accepted = (sum(getattr(w, n) for w in each) for n in ("drafted", "accepted"))
        lines.append(f"| {leg.name} | {rate:.1f} | {' | '.join(cells)} | {drafted} | {accepted} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="The policy on a cohort of many kinds of text.")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--legs", nargs="+", default=["eagle3:3", "eagle3:2!", "suffix:4"])
    parser.add_argument("--rounds", type=int, default=4, help="times all prompts are written")
    parser.add_argument("--tokens", type=int, default=64, help="of each request")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--compile-cache", default=str(cache_root() / "compiled"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    legs = [Leg("standard", (), 0), *map(leg_of, options.legs), Leg(AGAIN, (), 0, fixed=False)]
    text = report(options, legs, measure(options, legs))
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
