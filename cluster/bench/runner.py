"""The benchmark from its options to its report."""

from __future__ import annotations

import datetime
from contextlib import AsyncExitStack
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from cluster.bench import baseline, machine, plots, record, table
from cluster.bench.account import account
from cluster.bench.attempt import Asking, Attempt, Door, load_average
from cluster.bench.dataset import Dataset, load
from cluster.bench.door import ServerDoor
from cluster.bench.errors import BenchError
from cluster.bench.options import BenchOptions
from cluster.bench.page import page
from cluster.bench.pareto import front, points
from cluster.bench.schedule import Cell, schedule
from cluster.bench.servers import Server, served_model, servers
from cluster.bench.session import bar, measure_all
from cluster.bench.stop import Stop
from cluster.serving_wait import Interrupted, ServingError
from pilotfish import PilotfishError

REQUEST_TIMEOUT_S = 900.0
JSON_NAME, PAGE_NAME = "report.json", "report.html"


def run(options: BenchOptions) -> int:
    """The exit code: 0 when every leg is reported, 1 when one was refused or the servers did not
    start, 2 for options that cannot be, 130 when it was stopped."""
    console, progress = Console(), Console(stderr=True)
    stop = Stop()
    stop.install()
    try:
        return _run(options, console, progress, stop)
    except BenchError as error:
        progress.print(f"[red]error:[/red] {escape(str(error))}", highlight=False)
        return 2
    except ServingError as error:
        progress.print(f"[red]the servers did not start:[/red] {escape(str(error))}")
        return 1
    except PilotfishError as error:
        progress.print(f"[red]the server refused:[/red] {escape(str(error))}", highlight=False)
        return 1
    except Interrupted:
        progress.print("stopped; nothing is reported")
        return 130


def _run(options: BenchOptions, console: Console, progress: Console, stop: Stop) -> int:
    dataset = load(options.dataset)
    earlier = None
    here = machine.this_machine()
    if options.baseline is not None:
        earlier = baseline.choose(options.baseline, here)
        if earlier is None:
            progress.print(f"{options.baseline} holds no baseline yet", highlight=False)
    if options.output is not None:
        plots.require()
        _make(options.output)
    date = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    cells = _cells(options, dataset)
    quiet = load_average()
    with servers(options, progress, stop.event) as running:
        model = served_model(running[0], options.api_key)
        attempts = stop.run(_measure(options, cells, running, progress))
        progress.print("stopping" if options.attach is None else "done")
    figures, refused = account(attempts, {leg: s for s in running for leg in s.legs})
    taken = record.Record(
        date=date,
        command=options.command,
        machine=here,
        versions=machine.versions(),
        model=model,
        workload=_workload(options, dataset),
        busy=(quiet, attempts[-1].busy if attempts else None),
        figures=figures,
        refused=refused,
        front=tuple(p for t in options.temperatures for p in front(points(figures, t))),
    )
    table.show(taken, console)
    if earlier is not None:
        table.show_comparison(baseline.compare(taken, earlier), console)
    if options.output is not None:
        _write(taken, options.output, console)
    return 1 if refused else 0


def _cells(options: BenchOptions, dataset: Dataset) -> list[Cell]:
    return schedule(
        options.legs,
        options.settings,
        dataset=dataset.prompts,
        prompts=options.prompts,
        runs=options.runs,
        seed=options.seed,
    )


async def _measure(
    options: BenchOptions, cells: list[Cell], running: list[Server], console: Console
) -> list[Attempt]:
    async with AsyncExitStack() as stack:
        doors: dict[str, Door] = {}
        for server in running:
            door = ServerDoor(server, options.api_key, REQUEST_TIMEOUT_S)
            doors[server.name] = await stack.enter_async_context(door)
        with bar(console) as progress:
            return await measure_all(
                cells,
                doors,
                {leg: server.name for server in running for leg in server.legs},
                Asking(options.max_tokens, options.ignore_eos),
                clients=options.clients,
                warmup=options.warmup,
                progress=progress,
            )


def _workload(options: BenchOptions, dataset: Dataset) -> record.Workload:
    return record.Workload(
        dataset=dataset.name,
        digest=dataset.digest,
        prompts=len(dataset.prompts),
        duplicates=dataset.duplicates,
        prompts_a_run=options.prompts,
        runs=options.runs,
        max_tokens=options.max_tokens,
        ignore_eos=options.ignore_eos,
        warmup=options.warmup,
        seed=options.seed,
    )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchError(f"--output: cannot make {folder}: {error.strerror}") from None


def _write(taken: record.Record, folder: Path, console: Console) -> None:
    record.write(taken, folder / JSON_NAME)
    pictures = plots.draw(taken)
    for name, png in pictures.items():
        (folder / f"{name}.png").write_bytes(png)
    (folder / PAGE_NAME).write_text(page(taken, pictures), "utf-8")
    console.print(f"written: {folder / JSON_NAME}, {folder / PAGE_NAME}", highlight=False)
