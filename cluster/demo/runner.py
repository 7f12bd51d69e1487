"""The main job, shown: real prompts through standard decode and through remote drafting.

Both legs go to the same server, prompt by prompt and in turns, so neither has the machine to
itself longer than the other. The run counts only if the drafter lived through it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.markup import escape

from cluster.config import AppArgs, Dtype, PoolArgs, SpeculativeConfig
from cluster.demo import view, watch
from cluster.demo.dataset import DatasetError, Prompt, load
from cluster.demo.legs import REMOTE, STANDARD, run_leg
from cluster.demo.report import Pair, rows_of, table_of
from cluster.serving_wait import EXECUTOR_TIMEOUT_S, ServingError, until_settled
from cluster.sighting import Sighting, sighting
from pilotfish import Client, PilotfishError

MODEL = "smollm2"
DEPTH = 4
DRAFTER_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """attach: the gRPC address of a server that already runs; None starts one. kill_drafter:
    end the drafter's process before the first prompt, to see what its loss looks like."""

    dataset: Path | None = None
    dtype: Dtype = "auto"
    max_tokens: int = 64
    prompts: int | None = None
    attach: str | None = None
    kill_drafter: bool = False


def run(
    dataset: Path | None,
    dtype: str,
    max_tokens: int,
    prompts: int | None = None,
    attach: str | None = None,
    kill_drafter: bool = False,
) -> int:
    """The exit code: 0 when both legs ran, the drafter lived and the texts agree."""
    console = Console()
    if dtype not in get_args(Dtype):
        console.print(f"unknown dtype {dtype!r}; known: {', '.join(get_args(Dtype))}")
        return 2
    options = DemoOptions(dataset, dtype, max_tokens, prompts, attach, kill_drafter)  # type: ignore[arg-type]
    try:
        questions = load(options.dataset, options.prompts)
        with _server(options, console) as address, Client(address) as client:
            return _show(client, questions, options, console)
    except DatasetError as error:
        console.print(f"[red]dataset:[/red] {escape(str(error))}")
        return 2
    except watch.DrafterLost as error:
        console.print(f"\n[red]remote drafting did not happen:[/red] {escape(str(error))}")
        return 1
    except ServingError as error:
        console.print(f"[red]the server did not start:[/red] {escape(str(error))}")
        return 1
    except PilotfishError as error:
        console.print(f"\n[red]the server refused:[/red] {escape(str(error))}")
        return 1
    except KeyboardInterrupt:
        console.print("\nstopped")
        return 130


@contextmanager
def _server(options: DemoOptions, console: Console) -> Iterator[str]:
    """A gRPC address: the server given, or one of our own that ends with the demo."""
    if options.attach is not None:
        yield options.attach
        return
    from cluster.serving import free_port, start

    args = AppArgs(
        model=MODEL,
        dtype=options.dtype,
        max_model_len=4096,
        max_num_seqs=4,
        speculative_config=SpeculativeConfig(method="suffix", num_speculative_tokens=DEPTH),
        verifier=PoolArgs(num_cpus=2.0),
        drafter=PoolArgs(num_cpus=0.5, threads=1),
    )
    running = start(args, "127.0.0.1", free_port(), console=console)
    try:
        yield running.grpc_address
    finally:
        with console.status("stopping"):
            running.stop()


def _show(client: Client, questions: list[Prompt], options: DemoOptions, console: Console) -> int:
    before = watch.await_alive(client, DRAFTER_WAIT_S)
    if options.kill_drafter:
        watch.kill(before.drafter_pids[0])
        console.print(f"killed the drafter's process, pid {before.drafter_pids[0]}")
    watch.require_alive(sighting(client.status()), since=before)
    dtype = client.models()[0].dtype
    with console.status("the native executor is compiled"):
        executor = until_settled(client, EXECUTOR_TIMEOUT_S, time.sleep)
    console.print(
        f"model [bold]{client.models()[0].id}[/bold] in {dtype}, {executor} executor; verifier pid "
        f"{before.verifier_pids[0]}, drafter pid {before.drafter_pids[0]} ({DEPTH} tokens a block)"
        "\ntokens in [bold green]green[/bold green] were drafted remotely and accepted\n"
    )
    run_leg(client, STANDARD, "Say hello.", 4)
    run_leg(client, REMOTE, "Say hello.", 4)
    pairs = []
    for number, question in enumerate(questions, 1):
        view.heading(console, number, len(questions), question)
        pairs.append(_pair(client, question, options.max_tokens, number % 2 == 0, console))
        watch.require_alive(sighting(client.status()), since=before)
    return _account(pairs, before, sighting(client.status()), dtype, console)


def _pair(
    client: Client, question: Prompt, max_tokens: int, remote_first: bool, console: Console
) -> Pair:
    """Both legs of one prompt; they take turns at going first."""
    stream = view.StreamView(console)
    if remote_first:
        remote = run_leg(client, REMOTE, question.text, max_tokens, stream.show)
        with console.status("the same by standard decode"):
            standard = run_leg(client, STANDARD, question.text, max_tokens)
    else:
        with console.status("by standard decode first"):
            standard = run_leg(client, STANDARD, question.text, max_tokens)
        remote = run_leg(client, REMOTE, question.text, max_tokens, stream.show)
    pair = Pair(question.category, standard, remote)
    view.footer(console, standard, remote, pair.first_difference is None)
    return pair


def _account(
    pairs: list[Pair], before: Sighting, after: Sighting, dtype: str, console: Console
) -> int:
    rows = rows_of(pairs)
    console.print(table_of(rows, "Standard decode and remote drafting, greedy, one client"))
    sent = after.sent - before.sent
    received = after.received - before.received
    console.print(
        f"verifier pid {after.verifier_pids[0]}, drafter pid {after.drafter_pids[0]}; frames to "
        f"the drafter {sent}, back {received}; blocks used {after.used}, stale "
        f"{after.stale}, late {after.late}; {rows[-1].remote_share:.0%} of the "
        "tokens came from accepted remote blocks"
    )
    differing = [p for p in pairs if p.first_difference is not None]
    ties = sum(p.near_tie(dtype) for p in differing)
    if differing:
        console.print(f"{len(differing)} outputs differ, {ties} of them first at a near-tie")
    if not rows[-1].remote_share or received <= 0:
        raise watch.DrafterLost("no token came from a remote block")
    if len(differing) > ties or (differing and dtype != "bfloat16"):
        console.print("[red]outputs differ where the target was sure: not the same text[/red]")
        return 1
    return 0
