"""Pilotfish and its peers on the same prompts, in one run, on this machine.

python infra/bench/peers/run.py --spec-bench question.jsonl [--peers vllm,llama-cpp] [--rounds 3]

Each peer gets an environment of its own (made once), the same token ids, the same model from the
cache (bf16; llama.cpp the GGUF it was made from) and a time limit. Rounds take turns. What has been
measured is kept and not measured again, so a run that was broken off goes on; another folder
(--output) starts anew. A peer that fails is named with its reason, and the others go on.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2])]

from catalogue import PEERS, Peer  # noqa: E402
from environments import PeerError, gguf_of, python_of  # noqa: E402
from processes import run as run_process  # noqa: E402
from prompts import pick  # noqa: E402
from results import leg_name, read, show, summary  # noqa: E402
from rich.console import Console  # noqa: E402
from work import write_work  # noqa: E402

from cluster.bench.dataset import load  # noqa: E402
from cluster.bench.errors import DatasetError  # noqa: E402
from cluster.bench.machine import this_machine, versions  # noqa: E402
from cluster.models.paths import cache_root  # noqa: E402
from cluster.models.resolve import resolve  # noqa: E402
from cluster.serving_local import usable_cores  # noqa: E402

MODEL = "smollm2"
OURS = "suffix:4@colocated"


@dataclass(frozen=True)
class Leg:
    peer: Peer
    variant: str

    @property
    def name(self) -> str:
        return leg_name(self.peer.name, self.variant)

    def file(self, folder: Path, number: int) -> Path:
        safe = "".join(c if c.isalnum() else "-" for c in self.name)
        return folder / f"{safe}.round{number}.json"


def main() -> int:
    given = _arguments()
    console = Console()
    folder = given.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        prompts = pick(given.spec_bench) if given.spec_bench else list(load(None).prompts[:12])
    except DatasetError as error:
        sys.exit(f"error: {error}")
    prompts = prompts[: given.prompts]
    work = folder / "work.json"
    before = work.read_text("utf-8") if work.exists() else None
    write_work(work, Path(str(resolve(MODEL))), prompts, usable_cores())
    if before is not None and before != work.read_text("utf-8"):
        work.write_text(before, "utf-8")
        sys.exit(f"error: --output: {folder} holds figures of other prompts; name another folder")
    failures: dict[str, str] = {}
    for number in range(given.rounds):
        for leg in _turn(_legs(given), number):
            if leg.file(folder, number).exists():
                continue
            console.print(f"round {number + 1}/{given.rounds}: {leg.name}", highlight=False)
            reason = _measure(leg, number, folder, work, given)
            if reason is not None:
                failures[leg.name] = reason
                console.print(f"  {reason}", markup=False, highlight=False)
    records = read(folder)
    lines = [f"{name}: {reason}" for name, reason in failures.items()]
    show(records, lines, console)
    document = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": " ".join(["python", "infra/bench/peers/run.py", *sys.argv[1:]]),
        "machine": dataclasses.asdict(this_machine()),
        "versions": versions(),
        "prompts": given.spec_bench.name if given.spec_bench else "built-in",
        "legs": summary(records),
        "not_measured": failures,
    }
    (folder / "peers.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    console.print(f"written: {folder / 'peers.json'}", highlight=False)
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--spec-bench", type=Path, help="Spec-Bench's question.jsonl; default: ours"
    )
    parser.add_argument("--peers", default=",".join(PEERS), help=f"of {', '.join(PEERS)}")
    parser.add_argument("--ours", default=OURS, help="our drafting leg, as in pilotfish bench")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--prompts", type=int, help="only so many, for a trial")
    parser.add_argument("--timeout", type=float, default=2400.0, help="seconds for one leg")
    parser.add_argument("--output", type=Path, default=Path("pilotfish-bench/peers"))
    parser.add_argument("--envs", type=Path, default=cache_root() / "peers")
    given = parser.parse_args()
    given.peers = [name.strip() for name in given.peers.split(",") if name.strip()]
    unknown = [name for name in given.peers if name not in PEERS]
    if unknown:
        parser.error(f"--peers: unknown {', '.join(unknown)}; known: {', '.join(PEERS)}")
    return given


def _legs(given: argparse.Namespace) -> list[Leg]:
    legs = []
    for name in given.peers:
        peer = PEERS[name]
        variants = (*peer.variants, given.ours) if peer.own else peer.variants
        legs += [Leg(peer, variant) for variant in variants]
    return legs


def _turn(legs: list[Leg], number: int) -> list[Leg]:
    """Another leg goes first each round."""
    first = number % len(legs)
    return [*legs[first:], *legs[:first]]


def _measure(
    leg: Leg, number: int, folder: Path, work: Path, given: argparse.Namespace
) -> str | None:
    """Why there is no record of this leg, None when there is."""
    logs = folder / "logs"
    try:
        python = python_of(leg.peer, given.envs, logs / f"{leg.peer.name}.pip.log")
    except (PeerError, OSError) as error:
        return str(error)
    own = logs / f"{leg.peer.name}.work.json"
    document = json.loads(work.read_text("utf-8"))
    document["gguf"] = gguf_of(python)
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(json.dumps(document), "utf-8")
    record = leg.file(folder, number)
    fresh = record.with_suffix(".fresh")
    command = [str(python), str(HERE / leg.peer.runner), "--work", str(own)]
    command += ["--output", str(fresh), "--variant", leg.variant]
    paths = [str(HERE), *([str(HERE.parents[2])] if leg.peer.own else [])]
    environ = {"PYTHONPATH": os.pathsep.join(paths), **leg.peer.environ}
    library = python.parent.parent / leg.peer.preload
    if leg.peer.preload and library.is_file():
        environ["LD_PRELOAD"] = str(library)
    log = logs / f"{record.stem}.log"
    reason = run_process(command, environ, log, given.timeout)
    if reason is None:
        found = json.loads(fresh.read_text("utf-8"))
        record.write_text(json.dumps({**found, "round": number}) + "\n", "utf-8")
    fresh.unlink(missing_ok=True)
    return reason


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; the next run goes on from here")
