"""Speculation's counters of a run that can be counted by hand: a real engine, a drafter that is
right exactly k times a round, both doors.

Prefill writes one token. A round that may still write `rest` tokens drafts min(D, rest - 1) and
writes what is accepted and one more, so 13 tokens leave 12 to rounds:

    D=1 k=1   2 a round            rest 12 10 8 6 4 2           drafts 1 1 1 1 1 1
    D=2 k=2   3 a round            rest 12 9 6 3                drafts 2 2 2 2
    D=3 k=3   4 a round            rest 12 8 4                  drafts 3 3 3
    D=3 k=1   2 a round            rest 12 10 8 6 4 2           drafts 3 3 3 3 3 1
    D=4 k=2   3 a round            rest 12 9 6 3                drafts 4 4 4 2
    D=4 k=0   1 a round            rest 12 … 1                  drafts 4 (8 times) 3 2 1 -
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import torch

from actors.drafters.config import DrafterConfig
from actors.engine.options import EngineOptions
from actors.engine.service import EngineService
from cluster.deployments.reports import verifier_status
from cluster.gateway.grpc_server import GrpcSettings, start_grpc
from cluster.gateway.http import create_app
from cluster.gateway.loading import load_tokenizer
from cluster.gateway.service import GenerationService
from cluster.gateway.settings import GatewaySettings
from cluster.gateway.verifier_link import VerifierAddress
from cluster.gateway.verifiers import VerifierBackend
from pilotfish import AsyncClient
from pilotfish.v1 import control_pb2 as pb
from policies.cohorts import Cohorts, Rule
from tests.models import make_succ, save_tiny
from tests.unit.cluster.gateway.builders import make_client
from tests.unit.cluster.gateway_grpc.fakes import FAST, FakeRouter

TOKENS = 13


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return save_tiny(make_succ(), tmp_path_factory.mktemp("succ"))


@dataclass(frozen=True, slots=True)
class Doors:
    http: httpx.AsyncClient
    grpc: AsyncClient
    service: GenerationService

    async def ask(self, **fields: Any) -> dict[str, Any]:
        body = {"prompt": [3, 4], "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
        answer = await self.http.post("/v1/completions", json=body | fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def count(self, name: str, **labels: str) -> float:
        """0 for what was never counted."""
        await self.http.get("/metrics")
        labels = {"model_name": "succ", "engine": "0", **labels}
        return self.service.metrics.registry.get_sample_value(f"{name}_total", labels) or 0.0

    async def by_position(self, name: str, positions: int) -> list[float]:
        return [await self.count(name, position=str(k)) for k in range(positions)]


@asynccontextmanager
async def open_doors(model_path: str, depth: int, right: int) -> AsyncIterator[Doors]:
    """A gateway over one engine whose co-located drafter is right `right` times a round."""
    engine = EngineService(
        EngineOptions(
            model_path=model_path,
            verifier_id="v",
            dtype="float64",
            max_model_len=64,
            enforce_eager=True,
            placement="colocated",
            depth=depth,
            speculative=DrafterConfig(
                method="custom_class",
                model="tests.drafters.exact_k:ExactKDrafter",
                options={"model": model_path, "k": right},
            ),
        )
    )
    port = engine.start("127.0.0.1")
    router = FakeRouter(VerifierAddress("v", f"127.0.0.1:{port}"))
    digest = engine.tokenizer_digest
    backend = VerifierBackend(router, gateway="g", tokenizer_digest=digest, settings=FAST)
    settings = GatewaySettings(
        served_model_name="succ",
        num_speculative_tokens=depth,
        spec_metrics="detailed",
        cohorts=Cohorts([Rule("letters", task=("abc",))]),
    )
    tokenizer = load_tokenizer(model_path)
    service = GenerationService(backend, tokenizer, settings)

    async def status() -> pb.Status:
        stats = await asyncio.to_thread(engine.stats)
        return pb.Status(verifiers=[verifier_status("v", stats)])

    app = create_app(backend, tokenizer, settings, service=service, status=status)
    server = await start_grpc(service, GrpcSettings(), status)
    try:
        async with make_client(app) as http, AsyncClient(f"127.0.0.1:{server.port}") as grpc:
            yield Doors(http, grpc, service)
    finally:
        await server.stop(0.2)
        await backend.close()
        await asyncio.to_thread(engine.stop, 0.0)


@dataclass(frozen=True, slots=True)
class Run:
    """drafted, accepted: by round."""

    depth: int
    right: int
    drafted: list[int]
    accepted: list[int]
    drafted_at: list[int]
    accepted_at: list[int]
    histogram: list[int]
    undrafted: int = 0


RUNS = [
    Run(1, 1, [1] * 6, [1] * 6, [6], [6], [0, 6]),
    Run(2, 2, [2] * 4, [2] * 4, [4, 4], [4, 4], [0, 0, 4]),
    Run(3, 3, [3] * 3, [3] * 3, [3, 3, 3], [3, 3, 3], [0, 0, 0, 3]),
    Run(3, 1, [3, 3, 3, 3, 3, 1], [1] * 6, [6, 5, 5], [6, 0, 0], [0, 6, 0, 0]),
    Run(4, 2, [4, 4, 4, 2], [2] * 4, [4, 4, 3, 3], [4, 4, 0, 0], [0, 0, 4, 0, 0]),
    Run(
        4, 0, [4] * 8 + [3, 2, 1], [0] * 11, [11, 10, 9, 8], [0, 0, 0, 0], [11, 0, 0, 0, 0],
        undrafted=1,
    ),
]  # fmt: skip


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"D{run.depth}k{run.right}")
async def test_every_counter_is_the_one_counted_by_hand(model_path: str, run: Run) -> None:
    async with open_doors(model_path, run.depth, run.right) as doors:
        answer = await doors.ask(metadata={"cohort": "abc"})
        metrics = answer["metrics"]["speculative_decoding"]
        assert answer["usage"]["completion_tokens"] == TOKENS
        assert metrics["per_step_drafted"] == run.drafted
        assert metrics["per_step_accepted"] == run.accepted
        assert metrics["acceptance_histogram"] == run.histogram
        assert metrics["num_spec_steps"] == len(run.drafted) == sum(run.histogram)

        drafts, drafted, accepted = len(run.drafted), sum(run.drafted), sum(run.accepted)
        vllm = "vllm:spec_decode_num_"
        assert await doors.count(f"{vllm}drafts") == drafts
        assert await doors.count(f"{vllm}draft_tokens") == drafted
        assert await doors.count(f"{vllm}accepted_tokens") == accepted
        per_position = await doors.by_position(f"{vllm}accepted_tokens_per_pos", run.depth)
        assert per_position == run.accepted_at
        ours = "pilotfish:spec_decode_num_draft_tokens_per_pos"
        assert await doors.by_position(ours, run.depth) == run.drafted_at
        assert await doors.count("pilotfish:rounds", reason="drafted") == drafts
        assert await doors.count("pilotfish:rounds", reason="limit") == run.undrafted
        assert (
            await doors.count("vllm:generation_tokens")
            == TOKENS
            == 1 + accepted + drafts + (run.undrafted)
        )
        cohort = {"cohort": "letters", "mechanism": "exact-k", "placement": "colocated"}
        assert await doors.count("pilotfish:cohort_drafts", **cohort) == drafts
        assert await doors.count("pilotfish:cohort_draft_tokens", **cohort) == drafted
        assert await doors.count("pilotfish:cohort_accepted_tokens", **cohort) == accepted
        assert await doors.count("pilotfish:remote_accepted_tokens") == 0
        # One chunk of the prompt, and a forward a round.
        assert await doors.count("pilotfish:engine_steps") == 1 + drafts + run.undrafted
        assert await doors.count("pilotfish:draft_blocks", mechanism="exact-k") == drafts
        assert await doors.count("pilotfish:draft_seconds", mechanism="exact-k") > 0
        assert await doors.count("pilotfish:wire_seconds", mechanism="exact-k") == 0
        assert await doors.count("pilotfish:verify_seconds") > 0


@pytest.mark.parametrize("n_max", [0, 1, 2, 4, 32])
async def test_the_clients_bound_holds_at_both_doors_and_the_histogram_keeps_its_length(
    model_path: str, n_max: int
) -> None:
    depth = min(n_max, 4)
    rounds = -(-(TOKENS - 1) // (1 + depth))
    async with open_doors(model_path, depth=4, right=4) as doors:
        answer = await doors.ask(speculative={"n_max": n_max})
        whole = await doors.grpc.generate(
            tokens=[3, 4],
            max_tokens=TOKENS,
            temperature=0.0,
            ignore_eos=True,
            speculative_n_max=n_max,
        )
        found = answer["metrics"]["speculative_decoding"]
        asked_for_none = await doors.count("pilotfish:rounds", reason="client")
    assert list(whole.token_ids) == [(5 + i) % 16 for i in range(TOKENS)]
    if n_max == 0:
        assert found is None
        assert (whole.speculation.rounds, whole.speculation.drafted) == (0, 0)
        assert asked_for_none == 2 * (TOKENS - 1)
        return
    assert max(found["per_step_drafted"]) == depth
    assert found["num_spec_steps"] == whole.speculation.rounds == rounds
    assert found["num_draft_tokens"] == whole.speculation.drafted
    assert len(found["acceptance_histogram"]) == 5
