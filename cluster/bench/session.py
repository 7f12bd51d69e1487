"""All cells of a run, one after another, each at its leg's server."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from cluster.bench.attempt import Asking, Attempt, Clock, Door, measure, warm
from cluster.bench.legs import Leg
from cluster.bench.schedule import Cell
from cluster.bench.workload import Ledger


def bar(console: Console) -> Progress:
    """Requests done of all, and how long it will take; for `measure_all`."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


async def measure_all(
    cells: Sequence[Cell],
    doors: Mapping[str, Door],
    server_of: Mapping[Leg, str],
    asking: Asking,
    *,
    clients: int,
    warmup: int,
    progress: Progress,
    clock: Clock = time.perf_counter,
) -> list[Attempt]:
    """Attempts in the cells' order. doors: by server. The warm-up is in no figure."""
    task = progress.add_task("warming up", total=sum(len(cell.prompts) for cell in cells))
    for server, door in doors.items():
        legs = [leg for leg, name in server_of.items() if name == server]
        await warm(door, legs, clients, warmup, clock)
    progress.console.print(f"measuring {len(cells)} cells", highlight=False)
    ledger = Ledger()
    attempts = []
    for cell in cells:
        progress.update(task, description=_describe(cell))
        server = server_of[cell.leg]
        # Standard decode opens no session on a drafter, so it neither leaves nor finds anything.
        repeated = 0 if cell.leg.standard else ledger.note(server, cell.prompts)
        attempt = await measure(
            cell,
            doors[server],
            asking,
            repeated,
            on_answer=lambda: progress.advance(task),
            clock=clock,
        )
        attempts.append(attempt)
        if attempt.refused is not None:
            progress.console.print(
                f"{cell.leg.name}: not measured: {attempt.refused}", markup=False, highlight=False
            )
    return attempts


def _describe(cell: Cell) -> str:
    setting = cell.setting
    return f"{cell.leg.name}, T = {setting.temperature:g}, {setting.load.name}, run {cell.run + 1}"
