"""Round trip of the data plane: commit sent to block in hand, through sockets and processes.

A drafter that costs nothing in a process of its own, `RemotePort` in this one, loopback TCP, all
sessions in one frame each way, four tokens a block. With features each commit carries three rows
of 3 x 576 bf16 (three tapped layers of a hidden size of 576; 10,368 bytes).

    python infra/bench/exchange.py [--rounds 2000] [--out infra/bench/results/exchange.md]
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import google.protobuf
import grpc
import torch

from actors.contracts import (
    Commit,
    DrafterInfo,
    DraftRequest,
    OpenSession,
    PortCommit,
    Proposal,
    SessionKey,
)
from actors.exchange.compat import Compat
from actors.exchange.gathering import Patience
from actors.exchange.link import Endpoint
from actors.exchange.pool import PortOptions, RemotePort
from actors.exchange.server import DraftingServer
from actors.sampling.params import SamplingParams

TAPS = (1, 15, 27)
HIDDEN = 576
ROWS = 3
DEPTH = 4
WARM_UP = 200


class FreeDrafter:
    """Proposes the same block at once; keeps a length a session and nothing else."""

    def __init__(self, taps: tuple[int, ...]) -> None:
        self.info = DrafterInfo("free", "1", needs_features=bool(taps), taps=taps)
        self._lengths: dict[SessionKey, int] = {}

    def open(self, sessions: Sequence[OpenSession]) -> None:
        self._lengths.update({s.key: len(s.tokens) for s in sessions})

    def observe(self, commits: Sequence[Commit]) -> None:
        for commit in commits:
            self._lengths[commit.key] += len(commit.tokens)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        return [Proposal(r.key, self._lengths[r.key], (1,) * r.depth) for r in requests]

    def close(self, key: SessionKey) -> None:
        self._lengths.pop(key, None)


@dataclass
class View:
    request_id: str
    tokens: list[int]
    rows: torch.Tensor
    sampling: SamplingParams = field(default_factory=SamplingParams)
    tenant: str = ""
    trace: tuple[str, str] = ("", "")

    def features(self, from_row: int, to_row: int) -> torch.Tensor | None:
        return self.rows[:1].expand(to_row - from_row, -1).clone()


def serve(pipe: Connection, taps: tuple[int, ...]) -> None:
    torch.set_num_threads(1)
    server = DraftingServer(FreeDrafter(taps), name="d0")
    pipe.send(server.start())
    pipe.recv()
    server.stop(0.5)


def measure(sessions: int, taps: tuple[int, ...], rounds: int) -> tuple[list[float], float]:
    """Seconds of each round trip, and CPU seconds of this process for each round."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, taps), daemon=True)
    process.start()
    options = PortOptions(patience=Patience(fixed_wait_s=5.0))
    port = RemotePort("bench", compat=Compat(taps=taps), options=options)
    try:
        port.set_endpoints([Endpoint("d0", f"127.0.0.1:{ours.recv()}")])
        while not port.status()[0].up:
            time.sleep(0.01)
        return _rounds(port, sessions, taps, rounds)
    finally:
        port.shutdown()
        ours.send("stop")
        process.join(10)


def _rounds(
    port: RemotePort, sessions: int, taps: tuple[int, ...], rounds: int
) -> tuple[list[float], float]:
    rows = torch.randn(ROWS, max(1, len(taps)) * HIDDEN).bfloat16()
    views = [View(f"r{i}", list(range(16)), rows) for i in range(sessions)]
    wanted = {view.request_id: DEPTH for view in views}
    for view in views:
        port.open(view)
    seconds: list[float] = []
    cpu_s = 0.0
    turn = 0
    while len(seconds) < rounds:
        commits = []
        for view in views:
            count = ROWS if turn else 1
            commits.append(
                PortCommit(
                    view.request_id,
                    turn,
                    len(view.tokens),
                    (2,) * count,
                    DEPTH,
                )
            )
            view.tokens.extend((2,) * count)
        began, cpu_began = time.perf_counter(), time.process_time()
        port.commit(commits)
        gathered = port.gather(wanted, {})
        elapsed, cpu = time.perf_counter() - began, time.process_time() - cpu_began
        turn += 1
        complete = len(gathered.drafts) == sessions
        if turn > WARM_UP and complete:
            seconds.append(elapsed)
            cpu_s += cpu
        elif not complete:
            time.sleep(0.001)  # sessions are still being seeded
    return seconds, cpu_s / rounds


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def report(rounds: int) -> str:
    lines = [
        "# Exchange: commit sent to block in hand",
        "",
        __doc__.strip().split("\n\n")[1].replace("\n", " "),
        "",
        f"- Command: `python infra/bench/exchange.py --rounds {rounds}`",
        f"- Date: {datetime.date.today().isoformat()}",
        f"- {platform.machine()}, {multiprocessing.cpu_count()} cores, shared with other work; "
        f"Python {platform.python_version()}, grpcio {grpc.__version__}, "
        f"protobuf {google.protobuf.__version__}, torch {torch.__version__}",
        f"- {rounds} rounds a line after {WARM_UP} of warm-up; load average before: "
        f"{os.getloadavg()[0]:.1f}",
        "",
        "| sessions in one frame | features | p50 ms | p99 ms | mean ms | verifier CPU ms/round |",
        "| ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for taps in ((), TAPS):
        for sessions in (1, 8, 64):
            count = rounds if sessions < 64 else max(200, rounds // 4)
            seconds, cpu_s = measure(sessions, taps, count)
            kind = f"{ROWS} x {len(taps)}x{HIDDEN} bf16" if taps else "none"
            lines.append(
                f"| {sessions} | {kind} | {quantile(seconds, 0.5) * 1e3:.2f} "
                f"| {quantile(seconds, 0.99) * 1e3:.2f} | {statistics.mean(seconds) * 1e3:.2f} "
                f"| {cpu_s * 1e3:.2f} |"
            )
            print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Round trip of the data plane.")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    text = report(arguments.rounds)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
