"""The served application's own costs: start-up, idle load, time outside the model, CPU a token.

python infra/bench/serving.py [--model smollm2] [--dtype auto] [--tokens 64] [--idle-seconds 30]

One server, one client, greedy. Start-up is `pilotfish serve`'s path with the model cached, up to
the first token. "Outside the model" is wall time that the client saw between the first and the
last token, less the engine's seconds inside the model's forward. CPU a token is the CPU of every
process but the engine and this client, from /proc, over the tokens delivered.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import time
from importlib import metadata
from pathlib import Path

from idle import TICKS, memory, processes, share

from cluster.config import AppArgs, PoolArgs, SpeculativeConfig
from cluster.demo.dataset import load
from cluster.serving import Running, free_port, start
from pilotfish import Client

RESULT = Path(__file__).parent / "results" / "serving.md"


def cpu_outside(engine_pids: set[int]) -> float:
    """CPU seconds so far of all our processes but this one and the engines."""
    skip = engine_pids | {os.getpid()}
    return sum(ticks for pid, (_, ticks) in processes().items() if pid not in skip) / TICKS


def leg(client: Client, prompts: list[str], tokens: int, n_max: int | None) -> dict[str, float]:
    """Stream every prompt once; seconds, tokens and the engine's share of them."""
    decode_s = delivered = 0.0
    outside, forward_before, forward = [], 0.0, 0.0
    engines = {v.pid for v in client.status().verifiers}
    cpu_before, began = cpu_outside(engines), time.perf_counter()
    total = 0
    for prompt in prompts:
        forward_before = sum(v.engine.forward_s for v in client.status().verifiers)
        options = {} if n_max is None else {"speculative_n_max": n_max}
        stamps: list[float] = []
        count = 0
        started = time.perf_counter()
        with client.stream(
            messages=[{"role": "user", "content": prompt}],
            max_tokens=tokens,
            temperature=0.0,
            **options,
        ) as deltas:
            for delta in deltas:
                stamps.append(time.perf_counter())
                count += len(delta.token_ids)
        wall = stamps[-1] - started
        forward = sum(v.engine.forward_s for v in client.status().verifiers) - forward_before
        outside.append(1 - forward / wall)
        decode_s += stamps[-1] - stamps[0]
        delivered += count - 1
        total += count
    cpu = cpu_outside(engines) - cpu_before
    return {
        "tokens/s": delivered / decode_s,
        "outside the model's forward": statistics.median(outside),
        "CPU ms a token outside the engine": 1000 * cpu / total,
        "wall s": time.perf_counter() - began,
        "tokens": float(total),
    }


def first_token_s(running: Running) -> float:
    began = time.perf_counter()
    with Client(running.grpc_address) as client, client.stream("Hello", max_tokens=1) as deltas:
        for _ in deltas:
            break
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    options = parser.parse_args()
    prompts = [p.text for p in load(None, 8)]
    args = AppArgs(
        model=options.model,
        dtype=options.dtype,
        max_model_len=4096,
        verifier=PoolArgs(num_cpus=2.0),
        speculative_config=SpeculativeConfig(method="suffix"),
    )
    began = time.perf_counter()
    with start(args, port=free_port()) as running:
        ready_s = time.perf_counter() - began
        to_first_s = ready_s + first_token_s(running)
        with Client(running.grpc_address) as client:
            dtype = client.models()[0].dtype
            leg(client, prompts[:1], 8, None)
            standard = leg(client, prompts, options.tokens, 0)
            remote = leg(client, prompts, options.tokens, None)
        time.sleep(5.0)
        idle = [share(options.idle_seconds) for _ in range(3)]
        used = memory() / 2**30
    idle_percent = statistics.median(total for total, _ in idle)
    lines = [
        "# Costs of the served application",
        "",
        f"`python infra/bench/serving.py --model {options.model} --dtype {options.dtype} "
        f"--tokens {options.tokens}` on {datetime.date.today()}, {usable()} cores, "
        f"{cpu_name()}; {versions()}. Model in {dtype}; "
        f"{len(prompts)} prompts, one client, greedy.",
        "",
        "| what | figure | aim |",
        "| --- | --- | --- |",
        f"| start to ready, model cached | {ready_s:.1f} s | |",
        f"| start to the first token, model cached | {to_first_s:.1f} s | 40 s |",
        f"| idle load, median of three windows of {options.idle_seconds:.0f} s | "
        f"{idle_percent:.1f}% of a core | 5% |",
        f"| memory, shared pages counted once | {used:.2f} GiB | 6 GiB |",
    ]
    for figures in (standard, remote):
        background = idle_percent / 100 * figures["wall s"]
        figures["less the idle load"] = (
            figures["CPU ms a token outside the engine"] - 1000 * background / figures["tokens"]
        )
    aims = {
        "outside the model's forward": "15%",
        "CPU ms a token outside the engine": "",
        "less the idle load": "0.1 ms",
    }
    for name, figures in (("standard decode", standard), ("remote suffix drafter", remote)):
        for key in ("tokens/s", *aims):
            value = f"{figures[key]:.1%}" if "forward" in key else f"{figures[key]:.2f}"
            lines.append(f"| {name}: {key} | {value} | {aims.get(key, '')} |")
    text = "\n".join(lines) + "\n"
    RESULT.write_text(text)
    print(text)
    for name, percent in sorted(idle[-1][1].items(), key=lambda item: -item[1])[:8]:
        print(f"  idle {percent:5.2f}%  {name}")


def usable() -> int:
    from cluster.serving_local import usable_cores

    return usable_cores()


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def versions() -> str:
    names = ("torch", "transformers", "ray", "grpcio")
    return ", ".join(f"{name} {metadata.version(name)}" for name in names)


if __name__ == "__main__":
    main()
