"""The policy beside other ways to choose, on the computed world of the law tests.

    python infra/bench/policy.py [--shifts 48] [--out infra/bench/results/policy.md]

Nothing is timed: costs are recorded ones (`policies.rehearsal_recorded`), texts are drawn from a
seed before anyone decides, and what is counted are expectations.
"""

from __future__ import annotations

import argparse
import datetime
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from policy_rivals import Fixed, Length, Ucb

from policies.choice import Arm
from policies.choice_records import Policy
from policies.rehearsal import Phase, Profile, Tally, rehearse
from policies.rehearsal_recorded import LEARNED, MACHINE, SUFFIX, TEXTS, make_policy

ROUNDS = 300
KINDS = ("copy", "code", "chat", "copy")
CLIENTS = (1, 4, 12, 32)
FIXED = [(arm, d) for arm in (SUFFIX, LEARNED) for d in range(1, arm.max_depth + 1)]
BY_SIZE = {1: 3, 4: 2, 12: 1, 32: 0}
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


def traffic(shifts: int) -> list[tuple[str, Phase]]:
    found = []
    for i in range(shifts):
        kind, clients = KINDS[i % len(KINDS)], CLIENTS[i // len(KINDS) % len(CLIENTS)]
        found.append((kind, Phase(TEXTS[kind], clients, ROUNDS, (7, i))))
    return found


def best(phase: Phase, start: int, stop: int) -> float:
    rates = [phase.standard(MACHINE)]
    for arm, depth in FIXED:
        tokens, seconds = phase.static(MACHINE, arm, depth, start, stop)
        rates.append(tokens / seconds)
    return max(rates)


def run(policy: Policy, phases: list[tuple[str, Phase]]) -> list[Tally]:
    return [
        rehearse(policy, phase, MACHINE, first_step=i * ROUNDS)
        for i, (_, phase) in enumerate(phases)
    ]


def speed(phases: list[tuple[str, Phase]], tallies: list[Tally]) -> float:
    """Time that standard decode takes for the work of its rounds, against the time of this."""
    plain = sum(p.clients * p.rounds / p.standard(MACHINE) for _, p in phases)
    mine = sum(p.clients * p.rounds / t.rate() for (_, p), t in zip(phases, tallies, strict=True))
    return plain / mine


def comparison(phases: list[tuple[str, Phase]], mine: list[Tally]) -> list[str]:
    """The table of all rivals and of the best fixed choice."""
    early = [best(p, 0, 50) for _, p in phases]
    late = [best(p, 50, ROUNDS) for _, p in phases]
    lines = [
        "| | rounds 50 to 300 | first 50 | whole run | least cell |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]

    def add(name: str, tallies: list[Tally]) -> None:
        settled = np.mean([t.rate(50) / b for t, b in zip(tallies, late, strict=True)])
        first = np.mean([t.rate(0, 50) / b for t, b in zip(tallies, early, strict=True)])
        least = min(cells(phases, tallies).values())
        lines.append(
            f"| {name} | {settled:.3f} | {first:.3f} | {speed(phases, tallies):.3f} | {least:.2f} |"
        )
        print(lines[-1], flush=True)

    add("this policy", mine)
    for name, make in list(RIVALS.items())[1:]:
        add(name, run(make(), phases))
    fixed = {
        (arm, depth): run(Fixed(arm, {1: depth}), phases)
        for arm, depth in ((SUFFIX, 2), (SUFFIX, 4), (SUFFIX, 8), (LEARNED, 3), (LEARNED, 7))
    }
    for (arm, depth), tallies in fixed.items():
        add(f"fixed {arm.mechanism}, D = {depth}", tallies)
    add("standard decode", run(Fixed(SUFFIX, {}), phases))
    return lines


def cells(phases: list[tuple[str, Phase]], tallies: list[Tally]) -> dict[tuple[str, int], float]:
    """By kind of text and clients, the ratio to standard decode."""
    found: dict[tuple[str, int], list[float]] = {}
    for (kind, phase), tally in zip(phases, tallies, strict=True):
        found.setdefault((kind, phase.clients), []).append(tally.rate() / phase.standard(MACHINE))
    return {cell: float(np.mean(ratios)) for cell, ratios in found.items()}


def by_cell(phases: list[tuple[str, Phase]], mine: list[Tally]) -> list[str]:
    lines = [
        "| text | clients | ratio to standard decode | best fixed of the phase | mean D verified |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for (kind, clients), ratio in sorted(cells(phases, mine).items(), key=lambda c: c[0][1]):
        of = [
            (p, t)
            for (k, p), t in zip(phases, mine, strict=True)
            if (k, p.clients) == (kind, clients)
        ]
        top = np.mean([best(p, 0, ROUNDS) / p.standard(MACHINE) for p, _ in of])
        depth = np.mean([t.depth.mean() for _, t in of])
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shifts", type=int, default=48)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    phases = traffic(options.shifts)
    began = time.process_time()
    mine = run(make_policy(), phases)
    each_us = 1e6 * (time.process_time() - began) / (options.shifts * ROUNDS)
    lines = [
        "# The policy beside other ways to choose",
        "",
        f"`python infra/bench/policy.py --shifts {options.shifts}`, {datetime.date.today()}: "
        f"a computed world, {options.shifts} phases of {ROUNDS} rounds. Texts turn from "
        f"{' to '.join(KINDS)}; every {len(KINDS)} phases the clients change, "
        f"{', '.join(map(str, CLIENTS))}. Costs and texts: `policies/rehearsal_recorded.py`.",
        "",
        "Shares of the best fixed (mechanism, D) of each phase, standard decode among them, "
        "averaged over the phases; the speed of the whole run (the same work in each phase) and of "
        "the worst cell (text x clients) against standard decode. Control, shadows and probes are "
        "in this policy's figures; the others have none.",
        "",
        *comparison(phases, mine),
        "",
        "## By cell",
        "",
        *by_cell(phases, mine),
        "",
        "## Drafters that are of no use",
        "",
        "Tokens per second against standard decode, four clients, 900 rounds from a cold start.",
        "",
        *broken(),
        "",
        f"Deciding, choosing rows and learning, and the computed world around them, took "
        f"{each_us:.0f} microseconds of CPU a step here.",
    ]
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
