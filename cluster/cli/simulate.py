"""`pilotfish simulate` on the command line: flags in; nothing is imported until it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def simulate(
    scenario: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="A YAML file; see infra/sim.")
    ],
    legs: Annotated[
        str | None,
        typer.Option(
            metavar="LEG,…",
            help="standard, policy, WAY:D, engine:WAY. "
            "[default: the file's, else every fixed choice and the policy]",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="[default: the file's]")] = None,
    json: Annotated[bool, typer.Option("--json", help="Figures instead of a table.")] = False,
    plot: Annotated[
        Path | None, typer.Option(dir_okay=False, help="A picture: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Try draft lengths, pools, networks and faults on a simulated cluster."""
    from dataclasses import replace

    from cluster.plan import plot as picture
    from cluster.simulate import report, study
    from cluster.simulate.run import run

    try:
        if plot is not None:
            picture.check(plot)
        told = study.load(scenario)
        if legs is not None:
            told = replace(told, legs=tuple(leg.strip() for leg in legs.split(",")))
        outcomes = list(run(told, seed))
        if plot is not None:
            report.draw(told, outcomes, plot)
    except ValueError as error:
        typer.echo(f"pilotfish: error: {error}", err=True)
        raise SystemExit(2) from None
    except ModuleNotFoundError as error:
        typer.echo(
            f"pilotfish: error: {error.name} is not installed: pip install 'pilotfish[serve]'",
            err=True,
        )
        raise SystemExit(1) from None
    if json:
        typer.echo(report.as_json(told, outcomes))
        return
    from rich.console import Console

    report.show(told, outcomes, Console())
