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
    """Every leg of a run before the next run, settings in the outer loop, and another leg first
    each time: warm caches and a tiring machine then favour nobody."""
    turns = [(setting, run) for setting in settings for run in range(runs)]
    hands = deal(dataset, [setting.load.requests(prompts) for setting, _ in turns])
    cells: list[Cell] = []
    for number, ((setting, run), hand) in enumerate(zip(turns, hands, strict=True)):
        order = _turn(legs, number)
        cells += [Cell(leg, setting, run, hand, seed + number) for leg in order]
    return cells


def _turn(legs: Sequence[Leg], number: int) -> list[Leg]:
    """Drafting legs rotate among themselves, so that each is the first to meet fresh prompts as
    often as the others; standard decode, which leaves nothing behind, moves through the places."""
    order = [leg for leg in legs if not leg.standard]
    first = number % len(order)
    order = [*order[first:], *order[:first]]
    for place, leg in enumerate(leg for leg in legs if leg.standard):
        order.insert((number + place) % len(legs), leg)
    return order
