"""Our own server, whole: gateway, verifier and drafter on Ray, asked over gRPC by its SDK."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

from measure import Answer, Engine, Work, main

from cluster.bench.legs import parse_legs, speculative_config
from cluster.config import AppArgs, PoolArgs
from cluster.serving import free_port, start
from cluster.serving_wait import EXECUTOR_TIMEOUT_S, until_settled
from pilotfish import Client


class Pilotfish:
    together = True

    def __init__(self, work: Work, leg: str) -> None:
        fields = {"enable_prefix_caching": False}  # every prompt is new to every peer
        legs = parse_legs(leg if leg != "standard" else "suffix:1")
        self._running = start(
            AppArgs(
                model=work.model,
                dtype="bfloat16",
                max_model_len=work.max_model_len,
                max_num_seqs=len(work.prompts),
                speculative_config=None if leg == "standard" else speculative_config(legs[1:]),
                verifier=PoolArgs(num_cpus=1.0, threads=work.threads),
                drafter=PoolArgs(num_cpus=0.5, threads=1),
                **{name: value for name, value in fields.items() if name in AppArgs.model_fields},
            ),
            port=free_port(),
        )
        self._client = Client(self._running.grpc_address, retries=0)
        until_settled(self._client, EXECUTOR_TIMEOUT_S, time.sleep)

    def run(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[Answer]:
        began = time.perf_counter()
        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(lambda prompt: self._one(prompt, max_tokens, began), prompts))

    def _one(self, prompt: Sequence[int], max_tokens: int, began: float) -> Answer:
        answer = Answer()
        options = {"max_tokens": max_tokens, "temperature": 0.0}
        with self._client.stream(tokens=list(prompt), **options) as deltas:
            for delta in deltas:
                answer.add(time.perf_counter() - began, delta.token_ids)
        return answer

    def close(self) -> None:
        self._client.close()
        self._running.stop()


def build(work: Work, variant: str) -> tuple[Engine, dict[str, str]]:
    engine = Pilotfish(work, "standard" if variant == "plain" else variant)
    names = ("pilotfish", "torch", "ray", "transformers")
    return engine, {name: version(name) for name in names}


if __name__ == "__main__":
    main("pilotfish", build)
