"""`pilotfish train` on the command line: flags in, options out; nothing heavy until it runs."""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

MECHANISMS = ("dspark", "dflash", "eagle3", "mtp", "external")


def train(
    context: typer.Context,
    mechanism: Annotated[str, typer.Option(help=f"One of {', '.join(MECHANISMS)}.")],
    prompts: Annotated[
        Path,
        typer.Option(
            "--prompts",
            "--dataset-path",
            help="JSON lines of {prompt, category?}.",
        ),
    ],
    valid: Annotated[
        Path, typer.Option(help="The same, for validation; answered greedily, never trained on.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            help="Folder of the answers (shared by all mechanisms), checkpoints and the drafter; "
            "a run goes on from what is there."
        ),
    ],
    target: Annotated[
        str, typer.Option("--target", "--model", help="A name of `models list`, or a folder.")
    ] = "smollm2",
    minutes: Annotated[
        float, typer.Option(min=0.1, help="Of training in all, over every run of the folder.")
    ] = 60.0,
    num_prompts: Annotated[int, typer.Option(min=1, help="Prompts to answer.")] = 2500,
    num_valid: Annotated[int, typer.Option(min=1, help="Prompts of validation.")] = 100,
    max_tokens: Annotated[int, typer.Option(min=2, help="Of an answer.")] = 128,
    max_prompt_tokens: Annotated[
        int, typer.Option(min=1, help="Longer prompts are left out.")
    ] = 700,
    sampled_share: Annotated[
        float, typer.Option(min=0, max=1, help="Of the prompts answered at T = 1, not greedily.")
    ] = 0.25,
    max_answer_bytes: Annotated[str, typer.Option(help="Where recording stops, as in 8G.")] = "8g",
    record: Annotated[
        bool,
        typer.Option("--record/--no-record", help="Answer what is not answered yet."),
    ] = True,
    prompt_share: Annotated[
        float,
        typer.Option(min=0, max=1, help="Of the prompts whose own text is trained on too."),
    ] = 0.0,
    quote_share: Annotated[
        float,
        typer.Option(min=0, max=1, help="Of the long prompts that come again, with quotations."),
    ] = 0.0,
    draft_vocab: Annotated[
        int, typer.Option(min=1, help="The most frequent tokens, which alone are drafted.")
    ] = 8192,
    layers: Annotated[int, typer.Option(min=1, help="Decoder layers (dspark, dflash).")] = 2,
    intermediate: Annotated[
        int, typer.Option(min=0, help="Neurons of a layer's MLP. [default: by mechanism]")
    ] = 0,
    cut_layers: Annotated[
        str,
        typer.Option(
            help="Layers of the target that an external draft model is made of, as in 0,1,2,16,29; "
            "the first ones stay as they are. [default: the first ones, one more, and the two that "
            "copy best]"
        ),
    ] = "",
    drafts: Annotated[int, typer.Option(min=1, max=32, help="Longest block.")] = 6,
    mask_token: Annotated[
        int, typer.Option(min=0, help="An id that no text has (dspark, dflash).")
    ] = 4,
    learning_rate: Annotated[float, typer.Option(min=0, help="The highest.")] = 2e-3,
    init_from: Annotated[
        Path | None,
        typer.Option(help="A trained drafter's folder whose layers this one begins with."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget the mechanism's checkpoint in --output.")
    ] = False,
    layout: Annotated[
        str,
        typer.Option(
            help="Of the export: speculators, safeailab (eagle3), z-lab (dflash), shared or "
            "transformers (external). [default: by mechanism]"
        ),
    ] = "",
    device: Annotated[str, typer.Option(help="cpu, or a GPU as torch names it.")] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of order, anchors and sampled answers.")] = 0,
) -> None:
    """Train a drafter on what the target writes; Ctrl-C leaves a checkpoint to go on from."""
    raise typer.Exit(_run(context.params))


def _run(given: Mapping[str, Any]) -> int:
    """The exit code. `given`: the parameters of `train`."""
    if given["mechanism"] not in MECHANISMS:
        _fail(f"--mechanism: {given['mechanism']!r} is none of {', '.join(MECHANISMS)}", 2)
    try:
        implementation = importlib.import_module("cluster.training.command")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("cluster", "actors", "policies", "pilotfish"):
            raise
        _fail(f"{error.name} is not installed: pip install 'pilotfish[torch,serve]'", 1)
    command = shlex.join(["pilotfish", *sys.argv[1:]])
    code: int = implementation.run(given, command)
    return code


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"pilotfish: error: {message}", err=True)
    raise SystemExit(code)
