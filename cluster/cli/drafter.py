"""`pilotfish drafter`: what a drafter's checkpoint is, before anything is served with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

app = typer.Typer(help="Drafters' checkpoints.", no_args_is_help=True)


@app.callback()
def _drafter() -> None:
    """Drafters' checkpoints."""  # so that a single command keeps its name


@app.command()
def inspect(
    path: Annotated[str, typer.Argument(help="The folder or Hugging Face id of a drafter.")],
    target: Annotated[
        str | None,
        typer.Option(help="A target it should fit: as in `serve`. Exit status 1 if it does not."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say what a drafter is, what it fits, and why not."""
    try:
        said = _inspect(path, target)
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is not installed: pip install 'pilotfish[torch,serve]'")
    if as_json:
        import json

        typer.echo(json.dumps(said, indent=2))
    else:
        typer.echo("\n".join(lines(said)))
    raise typer.Exit(0 if said.get("fits", True) else 1)


def lines(said: dict[str, Any]) -> list[str]:
    """The same for people."""
    megabytes = said["bytes"] / 1e6
    taps = ", ".join(map(str, said["taps"])) or "none"
    rows = [
        ("method", f"{said['method']} (written by {said['producer']})"),
        ("for", said["for"] or "unsaid"),
        ("target", _target(said)),
        ("taps", f"hidden states {taps} of the target ({said['taps_from']})"),
        ("vocabulary", _vocabulary(said)),
        ("weights", f"{said['parameters'] / 1e6:.1f} M parameters, {megabytes:.1f} MB"),
        ("shared", _shared(said)),
        *(("note", note) for note in said["notes"]),
    ]
    if "fits" in said:
        rows.append(("fits", "yes" if said["fits"] else "no"))
        rows += [("", reason) for reason in said["reasons"]]
    return [f"{name:<12}{text}" for name, text in rows]


def _target(said: dict[str, Any]) -> str:
    layers = f", {said['target_layers']} layers" if said["target_layers"] else ""
    return f"hidden {said['target_hidden']}{layers}"


def _vocabulary(said: dict[str, Any]) -> str:
    whole, part = said["vocabulary"], said["draft_vocabulary"]
    return f"{whole or 'unsaid'}" + (f", of which {part} are drafted" if part != whole else "")


def _shared(said: dict[str, Any]) -> str:
    named = {"own_embedding": "embedding", "own_head": "head"}
    shared = [what for key, what in named.items() if not said[key]]
    return f"{' and '.join(shared)} with the target" if shared else "nothing"


def _inspect(path: str, target: str | None) -> dict[str, Any]:
    from actors.drafters.checkpoints.inspect import inspect as look
    from actors.drafters.checkpoints.locate import folder_of
    from actors.drafters.errors import DrafterLoadError
    from cluster.models.errors import ModelStoreError
    from cluster.models.resolve import resolve

    try:
        place = None if target is None else folder_of(str(resolve(target)), None)
        return look(Path(folder_of(path, None)), place)
    except (DrafterLoadError, ModelStoreError) as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    typer.echo(f"pilotfish: error: {message}", err=True)
    raise SystemExit(1)
