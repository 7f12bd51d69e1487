"""CPU that a served, idle application costs: `/proc` sums over every process it consists of.

python infra/bench/idle.py [--model smollm2] [--seconds 30] [--repeat 3]
python infra/bench/idle.py --empty        the same Ray with four empty replicas and one actor
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.config import AppArgs
from cluster.serving import free_port, start
from cluster.serving_local import LocalRay, environment

TICKS = os.sysconf("SC_CLK_TCK")


def processes() -> dict[int, tuple[str, int]]:
    """pid -> (name, CPU ticks so far) of this process and its descendants."""
    seen: dict[int, tuple[str, int]] = {}
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        fields = stat[stat.rindex(")") + 2 :].split()
        pid = int(folder.name)
        parents[pid] = int(fields[1])
        ticks = int(fields[11]) + int(fields[12])
        seen[pid] = (short(command), ticks)

    def ours(pid: int) -> bool:
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    return {pid: value for pid, value in seen.items() if ours(pid)}


def memory() -> int:
    """Bytes of all our processes, shared pages counted once (proportional set size)."""
    total = 0
    for pid in processes():
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        lines = [line.split() for line in rollup.splitlines() if line.startswith("Pss:")]
        total += sum(int(words[1]) * 1024 for words in lines)
    return total


def short(command: str) -> str:
    words = command.split()
    if not words:
        return "?"
    if words[0].startswith("ray::"):
        return words[0]
    scripts = [Path(w).name for w in words if w.endswith(".py")]
    return scripts[0] if scripts else Path(words[0]).name


def share(seconds: float) -> tuple[float, dict[str, float]]:
    """Percent of one core in all and by process."""
    before = processes()
    began = time.monotonic()
    time.sleep(seconds)
    after, spent = processes(), time.monotonic() - began
    by_name: dict[str, float] = {}
    for pid, (name, ticks) in after.items():
        used = ticks - before.get(pid, (name, 0))[1]
        by_name[name] = by_name.get(name, 0.0) + 100.0 * used / TICKS / spent
    return sum(by_name.values()), by_name


@contextmanager
def served(model: str) -> Iterator[None]:
    with start(AppArgs(model=model), port=free_port()):
        yield


@contextmanager
def empty() -> Iterator[None]:
    """As many processes as the application has, with nothing in them: Ray's own share."""
    with environment():
        ray = LocalRay(num_cpus=4)
        try:
            import ray as api
            from ray import serve

            @serve.deployment
            class Nothing:
                def __init__(self, *below: object) -> None:
                    self.below = below

            @api.remote
            class Idle:
                def ready(self) -> None:
                    pass

            serve.start(http_options={"port": free_port()}, logging_config={"log_level": "WARNING"})
            options = {"ray_actor_options": {"num_cpus": 0.1}, "health_check_period_s": 1.0}
            below = [Nothing.options(name=f"part{i}", **options).bind() for i in range(3)]
            serve.run(Nothing.options(**options).bind(*below), name="empty")
            idle = Idle.remote()
            api.get(idle.ready.remote())
            yield
        finally:
            ray.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--empty", action="store_true")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with empty() if options.empty else served(options.model):
        time.sleep(10.0)
        runs = [share(options.seconds) for _ in range(options.repeat)]
        size = memory()
    totals = [total for total, _ in runs]
    print(
        f"idle: {statistics.median(totals):.1f}% of a core "
        f"(runs: {', '.join(f'{total:.1f}' for total in totals)})"
    )
    print(f"memory, shared pages counted once: {size / 2**30:.2f} GiB")
    for name, percent in sorted(runs[-1][1].items(), key=lambda item: -item[1]):
        print(f"  {percent:5.2f}%  {name}")


if __name__ == "__main__":
    main()
