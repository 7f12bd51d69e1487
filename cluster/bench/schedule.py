"""The order of a run: legs take turns, so that none has the machine to itself longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.bench.dataset import Prompt
from cluster.bench.legs import Leg
from cluster.bench.loads import Load
from cluster.bench.workload import deal


@dataclass(frozen=True, slots=True)
class Setting:
    """What is compared leg against leg: one temperature under one load."""

    temperature: float
    load: Load


@dataclass(frozen=True, slots=True)
class Cell:
    """One leg, once. Cells of one setting and run differ in the leg alone: they have the same
    prompts, the same seeds of sampling and the same arrivals."""

    leg: Leg
    setting: Setting
    run: int
    prompts: tuple[Prompt, ...]
    seed: int


def schedule(
    legs: Sequence[Leg],
    settings: Sequence[Setting],
    *,
    dataset: Sequence[Prompt],
    prompts: int,
    runs: int,
    seed: int,
) -> list[Cell]:
    """Every leg of a run before the next run, settings in the outer loop, and the leg that goes
    first another one each time: warm caches and a tiring machine then favour nobody."""
    turns = [(setting, run) for setting in settings for run in range(runs)]
    hands = deal(dataset, [setting.load.requests(prompts) for setting, _ in turns])
    cells: list[Cell] = []
    for number, ((setting, run), hand) in enumerate(zip(turns, hands, strict=True)):
        first = number % len(legs)
        order = (*legs[first:], *legs[:first])
        cells += [Cell(leg, setting, run, hand, seed + number) for leg in order]
    return cells
