"""Two verifiers of two ranks each: a rank dies under load, and no text changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from actors.sampling.params import SamplingParams
from pilotfish import Client
from tests.integration.conftest import Deploy, Deployed
from tests.integration.processes import eventually, kill, running_pids
from tests.law.harness import plain

pytestmark = pytest.mark.cluster

PROMPTS = ["abcabcabcabdabcabcabe", "hello", "xyzxyzxyzxyz", "The pilot fish "]
LONG = 150


@pytest.fixture(scope="module")
def app(deploy: Deploy) -> Deployed:
    return deploy(
        tensor_parallel_size=2,
        speculative_config={"method": "ngram", "num_speculative_tokens": 3},
        verifier={"num_replicas": 2, "num_cpus": 0.1, "threads": 1},
        gateway={"num_cpus": 0.1, "takeover_timeout_s": 60.0},
    )


def seeded(client: Client, prompt: str, on_token: Event | None = None) -> tuple[int, ...]:
    """A sampled text; sets the event when it is under way."""
    ids: list[int] = []
    with client.stream(prompt, max_tokens=LONG, temperature=1.0, seed=7) as deltas:
        for delta in deltas:
            ids.extend(delta.token_ids)
            if on_token is not None and len(ids) > 20:
                on_token.set()
    return tuple(ids)


def test_ranks_share_their_replicas_placement_group(app: Deployed) -> None:
    from ray.util import placement_group_table

    placements = app.placements("Verifier")
    assert len(placements) == 2
    for placement in placements:
        bundles = placement_group_table()[placement["placement_group"]]["bundles"]
        assert len(bundles) == 3  # the replica and two ranks
        assert len({rank["pid"] for rank in placement["ranks"]}) == 2
    pids = {rank["pid"] for placement in placements for rank in placement["ranks"]}
    assert len(pids) == 4


def test_the_whole_server_writes_what_one_process_writes(app: Deployed, tiny_model: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float64).eval()
    ids = AutoTokenizer.from_pretrained(tiny_model)(PROMPTS[0])["input_ids"]
    own = plain(model, ids, SamplingParams(temperature=1.0, seed=7, max_tokens=40))
    with app.client() as client:
        text = client.generate(PROMPTS[0], max_tokens=40, temperature=1.0, seed=7)
    assert list(text.token_ids) == own


def test_a_rank_killed_under_load_loses_and_changes_no_request(app: Deployed) -> None:
    with app.client() as client, ThreadPoolExecutor(len(PROMPTS)) as pool:
        whole = [seeded(client, prompt) for prompt in PROMPTS]
        started = [Event() for _ in PROMPTS]
        texts = [
            pool.submit(seeded, client, prompt, event)
            for prompt, event in zip(PROMPTS, started, strict=True)
        ]
        for event in started:
            assert event.wait(60.0)
        busy = {v.pid for v in client.status().verifiers if v.running}
        victim = next(
            p["ranks"] for p in app.placements("Verifier") if p["ranks"][0]["pid"] in busy
        )
        kill(victim[1]["pid"])
        assert [text.result(timeout=120.0) for text in texts] == whole
        pids = {rank["pid"] for rank in victim}
        eventually(lambda: not running_pids(pids), 20.0)

        def replaced() -> bool:
            verifiers = client.status().verifiers
            return len(verifiers) == 2 and not pids & {v.pid for v in verifiers}

        eventually(replaced, 60.0)
        assert seeded(client, PROMPTS[0]) == whole[0]
