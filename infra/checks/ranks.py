"""The embedded model over three ranks a verifier, through the whole server, and a rank that dies.

    PYTHONPATH=. python infra/checks/ranks.py [--ranks 3] [--tokens 32] [--out FILE]

Two verifiers in fp32 on a Ray of their own, drafted by n-grams. Greedy and seeded requests run
together: undisturbed, then with a rank killed by its process id while they write, then once more.
Each text is compared with what one process writes by itself in fp32, and each log-probability at
the client's door with that process's, within RTOL of its largest logit. A first token that differs
is a fault unless the choice was nearer than twice that. Minutes on two cores.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from threading import Event
from typing import Any

import torch
from account import Account, Text, compare
from one_process import Asked, Own, largest_logit, own_text
from transformers import AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from actors.sampling.params import SamplingParams
from cluster.config import AppArgs, GatewayArgs, PoolArgs, SpeculativeConfig
from cluster.deployments import names
from cluster.gateway.loading import load_tokenizer
from cluster.models.resolve import resolve
from cluster.serving import Running, free_port, start
from pilotfish import Client
from tests.integration.processes import eventually, kill, running_pids

RTOL = 1e-5
TOP = 5
UNDER_WAY = 6
"""Tokens that every text has when the rank is killed."""
PATIENCE_S = 900.0
QUESTIONS = (
    "What is the capital of France?",
    "Write the word 'pilot' ten times.",
    "Count from one to twenty in words.",
    "Say in one sentence what a shark is.",
)


def requests(path: str, tokens: int) -> list[Asked]:
    """Each question greedily and at T = 1."""
    tokenizer, asked = load_tokenizer(path), []
    for number, question in enumerate(QUESTIONS):
        turn = [{"role": "user", "content": question}]
        ids = tuple(tokenizer.apply_chat_template(turn, add_generation_prompt=True)["input_ids"])
        for temperature in (0.0, 1.0):
            sampling = SamplingParams(
                temperature=temperature, seed=number + 7, max_tokens=tokens, ignore_eos=True
            )
            asked.append(Asked(f"{number}, T = {temperature:g}", ids, sampling))
    return asked


def by_one_process(path: str, asked: Sequence[Asked]) -> list[Own]:
    model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return [own_text(model.eval(), one) for one in asked]


def ask(client: Client, asked: Asked, text: Text, under_way: Event) -> None:
    """Fills the text; the event is set when UNDER_WAY tokens of it are there, or it has failed."""
    sampling = asked.sampling
    stream = client.stream(
        tokens=asked.prompt,
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        seed=sampling.seed,
        ignore_eos=True,
        logprobs=TOP,
    )
    try:
        with stream as deltas:
            for delta in deltas:
                text.ids += delta.token_ids
                text.scores += delta.logprobs
                text.speculation = delta.speculation or text.speculation
                if len(text.ids) >= UNDER_WAY:
                    under_way.set()
    finally:
        under_way.set()


def rank_pids() -> list[list[int]]:
    """Of each verifier, rank 0 first."""
    from ray import serve

    handle = serve.get_deployment_handle(names.VERIFIER, app_name=names.APP)
    found: list[dict[str, Any]] = handle.broadcast("placement").results(timeout_s=60.0)
    return [[rank["pid"] for rank in placement["ranks"]] for placement in found]


@dataclass(slots=True)
class Killer:
    """Ends the last rank of the verifier with the most requests. ranks: of each verifier, the
    process ids. gone: those of the one it chose; had: how many requests that had; written: how many
    tokens each text had then."""

    client: Client
    ranks: list[list[int]]
    gone: set[int] = field(default_factory=set)
    had: int = 0
    written: list[int] = field(default_factory=list)

    def __call__(self, texts: Sequence[Text]) -> None:
        running = {verifier.pid: verifier.running for verifier in self.client.status().verifiers}
        victim = max(self.ranks, key=lambda pids: running.get(pids[0], 0))
        kill(victim[-1])
        self.written = [len(text.ids) for text in texts]
        self.gone, self.had = set(victim), running.get(victim[0], 0)


def together(
    client: Client, asked: Sequence[Asked], during: Callable[[Sequence[Text]], None] | None = None
) -> list[Text]:
    """All requests at once; `during` is called when all of them write."""
    events, texts = [Event() for _ in asked], [Text() for _ in asked]
    with ThreadPoolExecutor(len(asked)) as pool:
        asking = [
            pool.submit(ask, client, one, text, event)
            for one, text, event in zip(asked, texts, events, strict=True)
        ]
        for event in events:
            event.wait(PATIENCE_S)
        if during is not None:
            during(texts)
        for done in asking:
            done.result()
    return texts


def replaced(client: Client, gone: set[int], count: int) -> bool:
    pids = {verifier.pid for verifier in client.status().verifiers}
    return len(pids) == count and not gone & pids


def args_of(options: argparse.Namespace) -> AppArgs:
    return AppArgs(
        model=options.model,
        dtype="float32",
        max_model_len=512,
        max_num_seqs=8,
        tensor_parallel_size=options.ranks,
        speculative_config=SpeculativeConfig(
            method="ngram", num_speculative_tokens=3, adaptive=False
        ),
        verifier=PoolArgs(num_replicas=2, num_cpus=0.1, threads=1),
        drafter=PoolArgs(num_cpus=0.1, threads=1),
        gateway=GatewayArgs(num_cpus=0.1, takeover_timeout_s=PATIENCE_S),
    )


def walk(running: Running, asked: list[Asked], owns: list[Own], account: Account) -> None:
    bound = RTOL * largest_logit(owns)
    with Client(running.grpc_address, timeout=PATIENCE_S) as client:
        texts = together(client, asked)
        account.texts("undisturbed", compare(asked, owns, texts, bound), texts, bound)
        killer = Killer(client, rank_pids())
        texts = together(client, asked, killer)
        ends = sum(
            count == len(own.tokens) for count, own in zip(killer.written, owns, strict=True)
        )
        account.say(
            f"a rank killed while its verifier had {killer.had} of {len(asked)} requests; texts "
            f"had {min(killer.written)} to {max(killer.written)} tokens, {ends} were whole"
        )
        if not killer.had:
            account.faults.append("the verifier of the killed rank had nothing to lose")
        account.texts("across the kill", compare(asked, owns, texts, bound), texts, bound)
        gone, count = killer.gone, running.args.verifier.num_replicas
        eventually(lambda: not running_pids(gone), 60.0)
        eventually(lambda: replaced(client, gone, count), PATIENCE_S)
        account.say("all ranks of that verifier are gone, and another has come")
        texts = together(client, asked)
        account.texts("afterwards", compare(asked, owns, texts, bound), texts, bound)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--out", type=Path, help="where the report goes as well")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    path, account = str(resolve(options.model)), Account()
    packages = ", ".join(f"{n} {version(n)}" for n in ("torch", "transformers", "ray"))
    account.say(
        f"{datetime.date.today()}: {options.model} in fp32 over {options.ranks} ranks, "
        f"{options.tokens} tokens; {platform.machine()}, {os.cpu_count()} cores; {packages}"
    )
    asked = requests(path, options.tokens)
    owns = by_one_process(path, asked)
    account.say(
        f"one process: logits reach {largest_logit(owns):.1f}, the nearest of "
        f"{sum(len(own.margins) for own in owns)} choices was by "
        f"{min(min(own.margins) for own in owns):.1e}"
    )
    with start(args_of(options), port=free_port()) as running:
        account.say("two verifiers serve")
        walk(running, asked, owns, account)
    account.lines += [f"- FAULT {fault}" for fault in account.faults] or ["- no fault"]
    print("\n".join(account.lines[-max(1, len(account.faults)) :]))
    if options.out:
        options.out.write_text("\n".join(account.lines) + "\n", "utf-8")
    return 1 if account.faults else 0


if __name__ == "__main__":
    sys.exit(main())
