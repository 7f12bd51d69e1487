"""The policy beside other ways to choose, on the computed world of the law tests.

    python infra/bench/policy.py [--shifts 48] [--out infra/bench/results/policy.md]

Nothing is timed: costs are recorded ones (`policies.rehearsal_recorded`), texts are drawn from a
seed before anyone decides, and what is counted are expectations.
"""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from policy_rivals import Fixed, Length, Ucb

from policies.choice import Arm
from policies.choice_records import Policy
from policies.rehearsal import Machine, Phase, Profile, Tally, rehearse
from policies.rehearsal_recorded import GPU, LEARNED, MACHINE, SUFFIX, TEXTS, make_policy

ROUNDS = 300
KINDS = ("copy", "code", "chat", "copy")
SEED = 7
CPU_CLIENTS, GPU_CLIENTS = (1, 4, 12, 32), (1, 8, 32)
OTHERS = [
    (KINDS, 101),
    (("chat", "copy", "code"), 11),
    (("code", "chat", "copy", "chat", "code", "copy"), 23),
]
"""Other orders of texts and other seeds, in which nothing was ever tried out."""
FIXED = [(arm, d) for arm in (SUFFIX, LEARNED) for d in range(1, arm.max_depth + 1)]
BY_SIZE = {1: 3, 4: 2, 12: 1, 32: 0}
BY_SIZE_GPU = {1: 5, 8: 4, 32: 3}
HEAD = "| | rounds 50 to 300 | first 50 | whole run | least cell |"
LINE = "| --- | ---: | ---: | ---: | ---: |"
RIVALS: dict[str, Callable[[], Policy]] = {
    "this policy": make_policy,
    "UCB1 over arms": lambda: Ucb((SUFFIX, LEARNED)),
    "discounted UCB (0.98)": lambda: Ucb((SUFFIX, LEARNED), 0.98),
    "accepted length + 1, suffix": lambda: Length(SUFFIX),
    "accepted length + 1, dflash": lambda: Length(LEARNED),
    "D by batch size, suffix": lambda: Fixed(SUFFIX, BY_SIZE),
    "D by batch size, dflash": lambda: Fixed(LEARNED, BY_SIZE),
}
BROKEN: dict[str, tuple[Mapping[Arm, Profile], float]] = {
    "useless": ({LEARNED: Profile(1.0, (0.01,)), SUFFIX: Profile(1.0, (0.01,))}, 0.0),
    "slow": ({LEARNED: Profile(1.0, (0.8,)), SUFFIX: Profile(0.0, (0.5,))}, 0.060),
    "dead": ({LEARNED: Profile(0.0, (0.5,)), SUFFIX: Profile(0.0, (0.5,))}, 0.005),
}


@dataclass(frozen=True)
class World:
    """Phases of traffic on one machine, each with its kind of text."""

    machine: Machine
    phases: Sequence[tuple[str, Phase]]

    @property
    def standard(self) -> list[float]:
        return [phase.standard(self.machine) for _, phase in self.phases]

    def best(self, start: int, stop: int) -> list[float]:
        """The rate of the best fixed choice in each phase, standard decode among them."""
        return [
            max(
                plain,
                *(
                    tokens / seconds
                    for arm, depth in FIXED
                    for tokens, seconds in [phase.static(self.machine, arm, depth, start, stop)]
                ),
            )
            for plain, (_, phase) in zip(self.standard, self.phases, strict=True)
        ]

    def run(self, policy: Policy) -> list[Tally]:
        return [
            rehearse(policy, phase, self.machine, first_step=i * ROUNDS)
            for i, (_, phase) in enumerate(self.phases)
        ]

    def speed(self, tallies: list[Tally]) -> float:
        """Time that standard decode takes for the work of its rounds, against the time of this."""
        work = [phase.clients * phase.rounds for _, phase in self.phases]
        plain = sum(w / rate for w, rate in zip(work, self.standard, strict=True))
        return plain / sum(w / t.rate() for w, t in zip(work, tallies, strict=True))

    def cells(self, tallies: list[Tally]) -> dict[tuple[str, int], float]:
        """By kind of text and clients, the ratio to standard decode."""
        found: dict[tuple[str, int], list[float]] = {}
        for (kind, phase), tally, plain in zip(self.phases, tallies, self.standard, strict=True):
            found.setdefault((kind, phase.clients), []).append(tally.rate() / plain)
        return {cell: float(np.mean(ratios)) for cell, ratios in found.items()}


def make_world(
    machine: Machine,
    clients: Sequence[int],
    shifts: int,
    kinds: Sequence[str] = KINDS,
    seed: int = SEED,
) -> World:
    found = []
    for i in range(shifts):
        kind, count = kinds[i % len(kinds)], clients[i // len(kinds) % len(clients)]
        found.append((kind, Phase(TEXTS[kind], count, ROUNDS, (seed, i))))
    return World(machine, found)


def shares(world: World, tallies: list[Tally]) -> tuple[float, float]:
    """Of the best fixed choice of each phase: over rounds 50 to 300, and over the first 50."""
    early, late = world.best(0, 50), world.best(50, ROUNDS)
    settled = [t.rate(50) / b for t, b in zip(tallies, late, strict=True)]
    first = [t.rate(0, 50) / b for t, b in zip(tallies, early, strict=True)]
    return float(np.mean(settled)), float(np.mean(first))


def row(name: str, world: World, tallies: list[Tally]) -> str:
    settled, first = shares(world, tallies)
    least = min(world.cells(tallies).values())
    line = f"| {name} | {settled:.3f} | {first:.3f} | {world.speed(tallies):.3f} | {least:.2f} |"
    print(line, flush=True)
    return line


def comparison(world: World, rivals: Mapping[str, Callable[[], Policy]]) -> list[str]:
    """The table of all, and then the first one's cells."""
    lines = [HEAD, LINE]
    cells: list[str] = []
    for name, make in rivals.items():
        tallies = world.run(make())
        lines.append(row(name, world, tallies))
        cells = cells or ["", *by_cell(world, tallies)]
    return lines + cells


def elsewhere(shifts: int) -> list[str]:
    """This policy alone, in other orders of texts, with other seeds, on both machines."""
    lines = [HEAD, LINE]
    for label, machine, clients in (("CPU", MACHINE, CPU_CLIENTS), ("H100", GPU, GPU_CLIENTS)):
        for kinds, seed in OTHERS:
            world = make_world(machine, clients, shifts, kinds, seed)
            tallies = world.run(make_policy(machine))
            lines.append(row(f"{label}: {', '.join(kinds)}; seed {seed}", world, tallies))
    return lines


def by_cell(world: World, tallies: list[Tally]) -> list[str]:
    tops = world.best(0, ROUNDS)
    lines = [
        "| text | clients | ratio to standard decode | best fixed of the phase | mean D verified |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for (kind, clients), ratio in sorted(world.cells(tallies).items(), key=lambda c: c[0][1]):
        mine = [i for i, (k, p) in enumerate(world.phases) if (k, p.clients) == (kind, clients)]
        top = np.mean([tops[i] / world.standard[i] for i in mine])
        depth = np.mean([tallies[i].depth.mean() for i in mine])
        lines.append(f"| {kind} | {clients} | {ratio:.3f} | {top:.3f} | {depth:.2f} |")
    return lines


def broken() -> list[str]:
    lines = [
        "| | useless | slow by 60 ms | dead, waited for 5 ms |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, make in RIVALS.items():
        ratios = []
        for profiles, slow_s in BROKEN.values():
            machine = MACHINE.slower(LEARNED, slow_s)
            phase = Phase(profiles, 4, 3 * ROUNDS, (1, 1))
            ratios.append(rehearse(make(), phase, machine).rate() / phase.standard(machine))
        lines.append(f"| {name} | " + " | ".join(f"{ratio:.3f}" for ratio in ratios) + " |")
    return lines


ON_CPU = {
    **RIVALS,
    "fixed suffix, D = 2": lambda: Fixed(SUFFIX, {1: 2}),
    "fixed suffix, D = 4": lambda: Fixed(SUFFIX, {1: 4}),
    "fixed suffix, D = 8": lambda: Fixed(SUFFIX, {1: 8}),
    "fixed dflash, D = 3": lambda: Fixed(LEARNED, {1: 3}),
    "fixed dflash, D = 7": lambda: Fixed(LEARNED, {1: 7}),
    "standard decode": lambda: Fixed(SUFFIX, {}),
}
ON_GPU: dict[str, Callable[[], Policy]] = {
    "this policy": lambda: make_policy(GPU),
    "UCB1 over arms": lambda: Ucb((SUFFIX, LEARNED)),
    "accepted length + 1, dflash": lambda: Length(LEARNED),
    "D by batch size, dflash": lambda: Fixed(LEARNED, BY_SIZE_GPU),
    "fixed suffix, D = 8": lambda: Fixed(SUFFIX, {1: 8}),
    "fixed dflash, D = 4": lambda: Fixed(LEARNED, {1: 4}),
    "standard decode": lambda: Fixed(SUFFIX, {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shifts", type=int, default=48)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    cpu = make_world(MACHINE, CPU_CLIENTS, options.shifts)
    gpu = make_world(GPU, GPU_CLIENTS, options.shifts)
    lines = [
        "# The policy beside other ways to choose",
        "",
        f"`python infra/bench/policy.py --shifts {options.shifts}`, {datetime.date.today()}: "
        f"computed worlds, {options.shifts} phases of {ROUNDS} rounds each. Texts turn from "
        f"{' to '.join(KINDS)}; every {len(KINDS)} phases the number of clients changes. Costs and "
        "texts: `policies/rehearsal_recorded.py`.",
        "",
        "Shares of the best fixed (mechanism, D) of each phase, standard decode among them, "
        "averaged over the phases; the speed of the whole run (the same work in each phase) and of "
        "the worst cell (text x clients) against standard decode. Control, shadows and probes are "
        "in this policy's figures; the others have none.",
        "",
        "## Two cores, SmolLM2-135M: rows are dear",
        "",
        *comparison(cpu, ON_CPU),
        "",
        "In eight of the twelve cells nothing beats standard decode by more than a hundredth; what "
        "counts there is to notice.",
        "",
        "## H100, Llama-3.1-8B: rows are cheap",
        "",
        *comparison(gpu, ON_GPU),
        "",
        "One step in 64 of standard decode costs more than a hundredth where speculation is five "
        "times as fast.",
        "",
        "## Other orders of texts, other seeds",
        "",
        "This policy alone.",
        "",
        *elsewhere(options.shifts),
        "",
        "## Drafters that are of no use",
        "",
        "Tokens per second against standard decode on two cores, four clients, 900 rounds from a "
        "cold start.",
        "",
        *broken(),
    ]
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
