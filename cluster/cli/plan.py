"""`pilotfish plan` on the command line: flags in; nothing is imported until it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def plan(
    model: Annotated[
        str, typer.Argument(help="A model's folder, its config.json, or a well-known name.")
    ],
    gpu: Annotated[str, typer.Option(help="Such as H100; an unknown one lists the known.")],
    tensor_parallel_size: Annotated[
        int, typer.Option("--tensor-parallel-size", "--tp", min=1, help="GPUs of one target.")
    ] = 1,
    dtype: Annotated[
        str | None, typer.Option(help="bf16, fp8 or fp4. [default: the model's]")
    ] = None,
    kv_cache_dtype: Annotated[str | None, typer.Option(help="bf16 or fp8.")] = None,
    context: Annotated[int, typer.Option(min=1, help="Tokens of a sequence.")] = 2048,
    concurrency: Annotated[
        str, typer.Option(metavar="N,…", help="Sequences of a step.")
    ] = "1,8,32,128",
    acceptance: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Chance that a drafted token is accepted.")
    ] = 0.7,
    mechanisms: Annotated[
        str, typer.Option(metavar="NAME,…", help="Only these. [default: all]")
    ] = "",
    drafter: Annotated[
        str | None, typer.Option(help="An external draft model: folder, config.json or name.")
    ] = None,
    drafter_gpu: Annotated[
        str | None, typer.Option(help="Where drafters run. [default: --gpu]")
    ] = None,
    rtt_us: Annotated[float, typer.Option(min=0.0, help="To a drafter and back.")] = 300.0,
    network_gbits: Annotated[float, typer.Option(min=0.001, help="To a drafter.")] = 25.0,
    json: Annotated[bool, typer.Option("--json", help="Figures instead of tables.")] = False,
    plot: Annotated[
        Path | None, typer.Option(dir_okay=False, help="A picture: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """What a model and a GPU say about D, drafters and the network, before anything is run."""
    from cluster.plan import answer, report
    from policies.codesign.plan import plan as planned

    try:
        if plot is not None:
            from cluster.plan import plot as picture

            picture.check(plot)
        question = answer.question(
            answer.Asked(
                model=model,
                gpu=gpu,
                tp=tensor_parallel_size,
                dtype=dtype,
                kv_dtype=kv_cache_dtype,
                context=context,
                concurrency=concurrency,
                acceptance=acceptance,
                mechanisms=mechanisms,
                drafter=drafter,
                drafter_gpu=drafter_gpu,
                rtt_us=rtt_us,
                network_gbits=network_gbits,
            )
        )
        result = planned(question)
        if plot is not None:
            picture.draw(question, result, plot)
    except ValueError as error:
        typer.echo(f"pilotfish: error: {error}", err=True)
        raise SystemExit(2) from None
    if json:
        typer.echo(report.as_json(question, result))
        return
    from rich.console import Console

    report.show(question, result, Console())
