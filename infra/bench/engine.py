"""Where a round's time goes inside the engine: the model's forward against everything else.

python infra/bench/engine.py [--model smollm2] [--dtype auto] [--tokens 48] [--clients 1 8]

The engine alone, in this process: no gateway, no network, standard decode. "Sampling" is a leg's
time outside the forward less the greedy leg's, over its forward time.
"""

from __future__ import annotations

import argparse
import datetime
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import torch

from actors.engine.core import Engine, drain
from actors.engine.loading import load_model, resolve_dtype
from actors.engine.noport import NoDrafts
from actors.engine.plan import Plan
from actors.engine.sequence import EngineRequest
from actors.engine.target import Target
from actors.sampling.params import SamplingParams
from cluster.gateway.loading import load_tokenizer
from cluster.models.resolve import resolve

RESULT = Path(__file__).parent / "results" / "engine.md"
LEGS = {
    "greedy": SamplingParams(temperature=0.0),
    "T=1, top_p=1": SamplingParams(temperature=1.0),
    "T=1, top_p=0.9": SamplingParams(temperature=1.0, top_p=0.9),
    "T=1, top_k=50": SamplingParams(temperature=1.0, top_k=50),
}


def leg(
    engine: Engine, ids: tuple[int, ...], params: SamplingParams, clients: int
) -> tuple[float, float, float]:
    """(milliseconds a step, of them in the forward, tokens a second), prefill left out."""
    for i in range(clients):
        engine.add(EngineRequest(f"r{i}", ids, replace(params, seed=i)))
    engine.step()
    before = replace(engine.stats)
    for _ in drain(engine):
        pass
    stats = engine.stats
    steps = stats.steps - before.steps
    busy, forward = stats.busy_s - before.busy_s, stats.forward_s - before.forward_s
    return 1000 * busy / steps, 1000 * forward / steps, (stats.tokens - before.tokens) / busy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    options = parser.parse_args()
    path = str(resolve(options.model))
    dtype = resolve_dtype(options.dtype, "cpu")
    engine = Engine(
        Target(load_model(path, None, dtype, "cpu")),
        NoDrafts(),
        Plan(0),
        num_blocks=512,
        block_size=16,
        max_model_len=4096,
    )
    prompt = [{"role": "user", "content": "Write a short story about a fish."}]
    encoded = load_tokenizer(path).apply_chat_template(prompt, add_generation_prompt=True)
    ids = tuple(encoded["input_ids"])
    lines = [
        "# Where a round's time goes inside the engine",
        "",
        f"`python infra/bench/engine.py --model {options.model} --dtype {options.dtype} --tokens "
        f"{options.tokens}` on {datetime.date.today()}, torch {metadata.version('torch')}, "
        f"transformers {metadata.version('transformers')}, {torch.get_num_threads()} threads, "
        f"{str(dtype).removeprefix('torch.')}. Standard decode, prefill left out.",
        "",
        "| clients | rows | ms a step | in the forward | outside | sampling / forward | tok/s |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for clients in options.clients:
        leg(engine, ids, replace(LEGS["greedy"], max_tokens=4), clients)
        outside_greedy = 0.0
        for name, params in LEGS.items():
            params = replace(params, max_tokens=options.tokens, ignore_eos=True)
            step, forward, rate = leg(engine, ids, params, clients)
            outside = step - forward
            if name == "greedy":
                outside_greedy = outside
            lines.append(
                f"| {clients} | {name} | {step:.1f} | {forward:.1f} | {outside / step:.1%} | "
                f"{(outside - outside_greedy) / forward:.1%} | {rate:.1f} |"
            )
            print(lines[-1])
    RESULT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
