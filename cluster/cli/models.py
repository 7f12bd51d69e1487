"""`pilotfish models`: the catalogue on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from cluster.config import AppArgs
from cluster.models.catalogue import CATALOGUE
from cluster.models.errors import ModelStoreError

app = typer.Typer(help="Models that come as packages.", no_args_is_help=True)


@app.command("list")
def list_models() -> None:
    """Names, sizes, licences, and what is in the cache."""
    from rich.console import Console
    from rich.table import Table

    from cluster.models.pull import cached

    table = Table("name", "model", "parameters", "download", "licence", "cached", box=None)
    for entry in CATALOGUE.values():
        size = f"{entry.wheel_bytes / 1e6:.0f} MB"
        state = "yes" if cached(entry) else "no"
        table.add_row(entry.name, entry.title, entry.parameters, size, entry.licence, state)
    Console().print(table)


@app.command()
def pull(
    name: Annotated[str, typer.Argument(help="A name of `models list`.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Hash every cached file and repair.")
    ] = False,
) -> None:
    """Fetch a model into the cache; prints its folder."""
    from cluster.models.progress import TerminalProgress
    from cluster.models.pull import pull as pull_model

    try:
        with TerminalProgress() as progress:
            folder = pull_model(name, progress=progress, thorough=verify)
    except ModelStoreError as error:
        _fail(error)
    except KeyboardInterrupt:
        typer.echo("stopped; the next pull goes on from here", err=True)
        raise SystemExit(130) from None
    typer.echo(str(folder))


def make_ready(args: AppArgs) -> None:
    """Have the models of a local server in the cache before it starts, with the bar in view."""
    make_ready_by_name(args.model)
    for draft in args.mechanisms:
        if draft.method != "custom_class" and draft.model:
            make_ready_by_name(draft.model)


def make_ready_by_name(name: str) -> None:
    """Resolve the name for its effect and its errors, the pull of a catalogue model."""
    from cluster.models.progress import TerminalProgress
    from cluster.models.resolve import resolve

    try:
        with TerminalProgress() as progress:
            resolve(name, progress=progress)
    except ModelStoreError as error:
        _fail(error)
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise SystemExit(130) from None


def _fail(error: ModelStoreError) -> None:
    typer.echo(f"pilotfish: error: {error}", err=True)
    raise SystemExit(1)
