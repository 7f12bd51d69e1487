"""`pilotfish bench` on the command line: flags in, options out; nothing heavy until it runs."""

from __future__ import annotations

import datetime
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from cluster.bench.options import BenchOptions

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
    context: typer.Context,
    model: Annotated[
        str, typer.Argument(help="A name of `models list`, a folder, or a Hugging Face id.")
    ] = "smollm2",
    legs: Annotated[
        str | None,
        typer.Option(
            metavar="LEGS",
            help="Comma-separated MECHANISM[=MODEL]:D[!][@remote|@colocated], ! for always D; "
            "standard decode is always among them. [default: suffix:4@colocated,suffix:4@remote]",
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
    verifier_gpus: Annotated[float, typer.Option(min=0, help="GPUs of a verifier.")] = 0.0,
    drafter_gpus: Annotated[float, typer.Option(min=0, help="GPUs of a remote drafter.")] = 0.0,
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
    raise typer.Exit(_run(context.params))


def _run(given: Mapping[str, Any]) -> int:
    """The exit code. `given`: the parameters of `bench`."""
    try:
        from cluster.bench.errors import BenchError
        from cluster.bench.runner import run
        from cluster.cli.models import make_ready_by_name
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("cluster", "actors", "policies", "pilotfish"):
            raise
        _fail(f"{error.name} is not installed: pip install 'pilotfish[torch,serve,bench]'", 1)
    try:
        options = _options(given)
    except BenchError as error:
        _fail(str(error), 2)
    if options.attach is None:
        drafters = [leg.model for leg in options.legs if leg.mechanism != "custom_class"]
        for name in dict.fromkeys([options.model, *drafters]):
            if name:
                make_ready_by_name(name)
    return run(options)


def _options(given: Mapping[str, Any]) -> BenchOptions:
    """Raises BenchError with the flag's name."""
    from cluster.bench import options as parsing

    return parsing.BenchOptions(
        model=given["model"],
        legs=parsing.legs_of(given["legs"], given["attach"]),
        loads=parsing.loads_of(given["max_concurrency"], given["request_rate"]),
        temperatures=parsing.temperatures_of(given["temperature"]),
        dataset=given["dataset_path"],
        prompts=given["num_prompts"],
        runs=given["runs"],
        max_tokens=given["max_tokens"],
        ignore_eos=given["ignore_eos"],
        warmup=given["warmup"],
        seed=given["seed"],
        dtype=parsing.dtype_of(given["dtype"]),
        max_model_len=given["max_model_len"],
        verifier_gpus=given["verifier_gpus"],
        drafter_gpus=given["drafter_gpus"],
        output=given["output"] or _dated(),
        attach=given["attach"],
        attach_http=given["attach_http"],
        api_key=given["api_key"] or None,
        baseline=given["baseline"],
        command=_command(sys.argv[1:], given["api_key"]),
    )


def _command(arguments: Sequence[str], secret: str | None) -> str:
    """As it was typed, for the record, which other people read: without the key."""
    line = shlex.join(["pilotfish", *arguments])
    return line.replace(secret, "KEY") if secret else line


def _dated() -> Path:
    return Path("pilotfish-bench") / datetime.datetime.now().strftime("%Y-%m-%dT%H%M%S")


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"pilotfish: error: {message}", err=True)
    raise SystemExit(code)
