"""`pilotfish profile` on the command line: flags in; nothing heavy until it runs."""

from __future__ import annotations

from typing import Annotated, Any, NoReturn

import typer

from cluster.cli.flags import BY_NAME, help_of
from cluster.cli.options import FlagError, app_args


def _flag(name: str) -> Any:
    """The typer option of one line of the flag table."""
    flag = BY_NAME[name]
    metavar = "JSON" if name == "--speculative-config" else None
    return typer.Option(*flag.declarations, help=help_of(flag), metavar=metavar)


def profile(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(help="A name of `models list`, a folder, or a Hugging Face id."),
    ] = None,
    speculative_config: Annotated[str | None, _flag("--speculative-config")] = None,
    max_num_seqs: Annotated[int | None, _flag("--max-num-seqs")] = None,
    max_model_len: Annotated[str | None, _flag("--max-model-len")] = None,
    dtype: Annotated[str | None, _flag("--dtype")] = None,
    revision: Annotated[str | None, _flag("--revision")] = None,
    enforce_eager: Annotated[bool | None, _flag("--enforce-eager")] = None,
    verifier_threads: Annotated[int | None, _flag("--verifier-threads")] = None,
    verifier_gpus: Annotated[float | None, _flag("--verifier-gpus")] = None,
    json: Annotated[bool, typer.Option("--json", help="Figures instead of tables.")] = False,
) -> None:
    """Measure what a step and a draft cost here, and what acceptance would make drafting pay."""
    given = {name: value for name, value in context.params.items() if name != "json"}
    try:
        args = app_args(model, None, "127.0.0.1", given)
    except FlagError as error:
        _fail(str(error), 2)
    try:
        from cluster.cli.models import make_ready
        from cluster.profile import measure, report
    except ModuleNotFoundError as error:
        _fail(f"{error.name} is not installed: pip install 'pilotfish[torch,serve]'", 1)
    from actors.drafters.errors import DrafterLoadError
    from actors.engine.errors import EngineError
    from cluster.models.errors import ModelStoreError

    try:
        make_ready(args)
        found = measure.measure(args)
    except (EngineError, DrafterLoadError, ModelStoreError, ValueError) as error:
        _fail(str(error), 1)
    if json:
        typer.echo(report.as_json(found))
        return
    from rich.console import Console

    report.show(found, Console())


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"pilotfish: error: {message}", err=True)
    raise SystemExit(code)
