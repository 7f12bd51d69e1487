"""`pilotfish bench` on the command line: flags in, options out; nothing heavy until it runs."""

from __future__ import annotations

import datetime
import shlex
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

FOREIGN: dict[str, str] = {
    # `vllm bench serve`
    "--backend": "",
    "--base-url": "--attach",
    "--burstiness": "--request-rate (arrivals are Poisson)",
    "--custom-output-len": "--max-tokens",
    "--dataset-name": "--dataset-path (the format is told from the file)",
    "--endpoint": "--attach",
    "--extra-body": "",
    "--goodput": "",
    "--host": "--attach",
    "--metric-percentiles": "--output (every percentile is in the record)",
    "--num-warmups": "--warmup",
    "--output-len": "--max-tokens",
    "--percentile-metrics": "--output (every latency is in the record)",
    "--port": "--attach",
    "--random-output-len": "--max-tokens",
    "--result-dir": "--output",
    "--result-filename": "--output",
    "--save-detailed": "--output",
    "--save-result": "--output",
    "--spec-bench-category": "--dataset-path with a file of that category",
    "--spec-bench-output-len": "--max-tokens",
    "--speed-bench-output-len": "--max-tokens",
    # of `pilotfish serve`, and near misses
    "--clients": "--max-concurrency",
    "--concurrency": "--max-concurrency",
    "--leg": "--legs",
    "--num-speculative-tokens": "--legs, as in --legs suffix:4",
    "--rate": "--request-rate",
    "--spec-method": "--legs, as in --legs suffix:4",
    "--spec-model": "--legs, as in --legs draft_model=MODEL:4",
    "--spec-tokens": "--legs, as in --legs suffix:4",
    "--speculative-config": "--legs, as in --legs suffix:4",
    "-sc": "--legs, as in --legs suffix:4",
}


def bench(
    model: Annotated[
        str, typer.Argument(help="A name of `models list`, a folder, or a Hugging Face id.")
    ] = "smollm2",
    legs: Annotated[
        str | None,
        typer.Option(
            metavar="LEGS",
            help="Comma-separated MECHANISM[=MODEL]:D[@remote|@colocated]; standard decode is "
            "always among them. [default: suffix:4@colocated,suffix:4@remote]",
        ),
    ] = None,
    dataset_path: Annotated[
        Path | None,
        typer.Option(
            "--dataset-path",
            "--dataset",
            help="Spec-Bench, prepared SPEED-Bench, or JSON lines with a prompt. "
            "[default: the built-in prompts]",
        ),
    ] = None,
    num_prompts: Annotated[int, typer.Option(min=1, help="Prompts of one run.")] = 12,
    runs: Annotated[int, typer.Option(min=1, help="Times that the legs take turns.")] = 3,
    max_concurrency: Annotated[
        str | None,
        typer.Option(metavar="N,…", help="Closed loop: clients at once. [default: 1,4]"),
    ] = None,
    request_rate: Annotated[
        str | None,
        typer.Option(metavar="R,…", help="Open loop: requests a second, Poisson."),
    ] = None,
    temperature: Annotated[str, typer.Option(metavar="T,…", help="0 is greedy.")] = "0,1",
    max_tokens: Annotated[int, typer.Option(min=2, help="Tokens of an answer.")] = 64,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Answers of exactly --max-tokens.")
    ] = False,
    warmup: Annotated[int, typer.Option(min=0, help="Requests of each leg before it counts.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of arrivals and sampling.")] = 0,
    dtype: Annotated[str, typer.Option(help="auto, bfloat16, float32 or float64.")] = "auto",
    max_model_len: Annotated[int, typer.Option(min=2, help="Context in tokens.")] = 4096,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the record (JSON), the pictures (PNG) and the page (HTML). "
            "[default: pilotfish-bench/DATE]"
        ),
    ] = None,
    attach: Annotated[
        str | None,
        typer.Option(help="gRPC address of a running server; default: servers of its own."),
    ] = None,
    attach_http: Annotated[
        str | None,
        typer.Option(help="Its HTTP address, for acceptance by position."),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="PILOTFISH_API_KEY", help="Key of the running server.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="An earlier record, or a folder of them, to compare with."),
    ] = None,
) -> None:
    """Measure drafting legs against standard decode, side by side in one run."""
    try:
        from cluster.bench import options as parsing
        from cluster.bench.errors import BenchError
        from cluster.bench.runner import run
        from cluster.cli.models import make_ready_by_name
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("cluster", "actors", "policies", "pilotfish"):
            raise
        _fail(f"{error.name} is not installed: pip install 'pilotfish[torch,serve,bench]'", 1)
    try:
        options = parsing.BenchOptions(
            model=model,
            legs=parsing.legs_of(legs, attach),
            loads=parsing.loads_of(max_concurrency, request_rate),
            temperatures=parsing.temperatures_of(temperature),
            dataset=dataset_path,
            prompts=num_prompts,
            runs=runs,
            max_tokens=max_tokens,
            ignore_eos=ignore_eos,
            warmup=warmup,
            seed=seed,
            dtype=parsing.dtype_of(dtype),
            max_model_len=max_model_len,
            output=output or _dated(),
            attach=attach,
            attach_http=attach_http,
            api_key=api_key or None,
            baseline=baseline,
            command=shlex.join(["pilotfish", *sys.argv[1:]]),
        )
    except BenchError as error:
        _fail(str(error), 2)
    if attach is None:
        for name in dict.fromkeys([model, *(leg.model for leg in options.legs if _is_model(leg))]):
            make_ready_by_name(str(name))
    raise typer.Exit(run(options))


def _dated() -> Path:
    return Path("pilotfish-bench") / datetime.datetime.now().strftime("%Y-%m-%dT%H%M%S")


def _is_model(leg: object) -> bool:
    """Whether the leg's model is one to fetch, and not a class."""
    return bool(getattr(leg, "model", None)) and getattr(leg, "mechanism", "") != "custom_class"


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"pilotfish: error: {message}", err=True)
    raise SystemExit(code)
