"""`pilotfish`: the command line. Commands import what they run only when they run it.

So that `--help` answers at once, this module and what it imports load neither torch nor ray; a
test holds it to that.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from cluster.cli import bench, drafter, models, plan, profile, simulate, train
from cluster.cli.flags import BY_NAME, help_of
from cluster.cli.foreign import FOREIGN, normalised, refusal
from cluster.cli.options import FlagError, app_args

API_KEY = "PILOTFISH_API_KEY"
URL = "http://127.0.0.1:8000"

app = typer.Typer(
    name="pilotfish",
    help="Serve large language models with speculative decoding on a Ray cluster.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help and one-line errors, and half the start-up time
    pretty_exceptions_enable=False,
)
app.add_typer(drafter.app, name="drafter")
app.add_typer(models.app, name="models")
app.command()(bench.bench)
app.command()(plan.plan)
app.command()(profile.profile)
app.command()(simulate.simulate)
app.command()(train.train)

ApiKey = Annotated[
    str | None,
    typer.Option("--api-key", envvar=API_KEY, help="Key clients must send.", show_envvar=True),
]


def _flag(name: str) -> Any:
    """The typer option of one line of the flag table."""
    flag = BY_NAME[name]
    metavar = "JSON" if name in ("--speculative-config", "--cohorts") else None
    return typer.Option(
        *flag.declarations, help=help_of(flag), rich_help_panel=flag.panel, metavar=metavar
    )


@app.command()
def serve(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(help="A name of `models list`, a folder, or a Hugging Face id."),
    ] = None,
    model_flag: Annotated[str | None, typer.Option("--model", hidden=True)] = None,
    served_model_name: Annotated[str | None, _flag("--served-model-name")] = None,
    tokenizer: Annotated[str | None, _flag("--tokenizer")] = None,
    revision: Annotated[str | None, _flag("--revision")] = None,
    dtype: Annotated[str | None, _flag("--dtype")] = None,
    max_model_len: Annotated[str | None, _flag("--max-model-len")] = None,
    max_num_seqs: Annotated[int | None, _flag("--max-num-seqs")] = None,
    max_num_batched_tokens: Annotated[int | None, _flag("--max-num-batched-tokens")] = None,
    max_num_queued_reqs: Annotated[int | None, _flag("--max-num-queued-reqs")] = None,
    max_num_queued_tokens: Annotated[int | None, _flag("--max-num-queued-tokens")] = None,
    block_size: Annotated[int | None, _flag("--block-size")] = None,
    kv_cache_memory_bytes: Annotated[str | None, _flag("--kv-cache-memory-bytes")] = None,
    enable_prefix_caching: Annotated[bool | None, _flag("--enable-prefix-caching")] = None,
    enforce_eager: Annotated[bool | None, _flag("--enforce-eager")] = None,
    batch_invariant: Annotated[bool | None, _flag("--batch-invariant")] = None,
    tensor_parallel_size: Annotated[int | None, _flag("--tensor-parallel-size")] = None,
    verifier_threads: Annotated[int | None, _flag("--verifier-threads")] = None,
    speculative_config: Annotated[str | None, _flag("--speculative-config")] = None,
    spec_method: Annotated[str | None, _flag("--spec-method")] = None,
    spec_model: Annotated[str | None, _flag("--spec-model")] = None,
    spec_tokens: Annotated[int | None, _flag("--spec-tokens")] = None,
    verifiers: Annotated[int | None, _flag("--verifiers")] = None,
    drafters: Annotated[int | None, _flag("--drafters")] = None,
    verifier_gpus: Annotated[float | None, _flag("--verifier-gpus")] = None,
    drafter_gpus: Annotated[float | None, _flag("--drafter-gpus")] = None,
    address: Annotated[
        str | None,
        typer.Option(help="A running Ray cluster; default: a local one of its own."),
    ] = None,
    host: Annotated[str, typer.Option(help="Where HTTP and gRPC listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="HTTP port; 0: any free.")] = 8000,
    cohorts: Annotated[str | None, _flag("--cohorts")] = None,
    grpc_port: Annotated[int | None, _flag("--grpc-port")] = None,
    tls_certificate: Annotated[str | None, _flag("--tls-certificate")] = None,
    tls_key: Annotated[str | None, _flag("--tls-key")] = None,
    otlp_traces_endpoint: Annotated[str | None, _flag("--otlp-traces-endpoint")] = None,
    api_key: ApiKey = None,
) -> None:
    """Serve a model: an OpenAI-compatible HTTP server and a gRPC server."""
    try:
        args = app_args(model, model_flag, host, context.params)
    except FlagError as error:
        _fail(str(error), 2)
    if api_key:
        # Through the environment, where the gateway looks, and never through the configuration:
        # that is printed, logged and kept by Serve.
        os.environ[args.gateway.api_key_env] = api_key
    raise typer.Exit(_implementation("cluster.cli.serve").run(args, host, port, address))


@app.command()
def chat(
    url: Annotated[str, typer.Option(help="The server's HTTP address.")] = URL,
    model: Annotated[str | None, typer.Option(help="Default: the server's model.")] = None,
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, help="0 is greedy.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer.")] = None,
    api_key: ApiKey = None,
) -> None:
    """Talk to a running server in the terminal."""
    run = _implementation("cluster.cli.chat").run
    code = run(url, model, system, temperature=temperature, max_tokens=max_tokens, api_key=api_key)
    raise typer.Exit(code)


@app.command()
def demo(
    dataset: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Prompts in Spec-Bench format (JSONL)."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="Of the target's weights.")] = "auto",
    max_tokens: Annotated[int, typer.Option(min=1, help="Tokens per answer.")] = 64,
    prompts: Annotated[int | None, typer.Option(min=1, help="Only so many.")] = None,
    attach: Annotated[
        str | None, typer.Option(help="gRPC address of a running server; default: its own.")
    ] = None,
    kill_drafter: Annotated[
        bool, typer.Option("--kill-drafter", help="Kill the drafter before the first prompt.")
    ] = False,
) -> None:
    """Answer real prompts by standard decode and by remote drafting, side by side."""
    if attach is None:
        models.make_ready_by_name(_implementation("cluster.demo.runner").MODEL)
    run = _implementation("cluster.demo.runner").run
    raise typer.Exit(run(dataset, dtype, max_tokens, prompts, attach, kill_drafter))


@app.command()
def version() -> None:
    """Versions of Pilotfish and of what it runs on."""
    from importlib.metadata import PackageNotFoundError, version

    for name in ("pilotfish", "ray", "torch", "transformers", "grpcio"):
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "not installed"
        typer.echo(f"{name:<13}{found}")
    typer.echo(f"{'python':<13}{sys.version.split()[0]}")


def _implementation(module: str) -> Any:
    """A command's module; a missing extra is one line, not a stack trace."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("cluster", "actors", "policies", "pilotfish"):
            raise
        _fail(f"{error.name} is not installed: pip install 'pilotfish[torch,serve]'", 1)


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"pilotfish: error: {message}", err=True)
    raise SystemExit(code)


def main() -> None:
    arguments = normalised(sys.argv[1:])
    foreign = {"serve": FOREIGN, "bench": bench.FOREIGN}.get("".join(arguments[:1]), {})
    if (line := refusal(arguments[1:], foreign)) is not None:
        _fail(line, 2)
    app(args=arguments, prog_name="pilotfish")


if __name__ == "__main__":
    main()
