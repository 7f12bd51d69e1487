"""From a target cut over ranks to the client: scores are those of one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from actors.drafters.config import DrafterConfig
from actors.engine.options import EngineOptions
from actors.engine.service import EngineService
from actors.engine.tp.lead import Lead
from pilotfish.v1 import inference_pb2 as pb
from tests.law.test_tensor_parallel import ATOL, CONFIGS
from tests.models import make_tokenizer
from tests.ranks import CONTEXT, PATIENCE, be_rank
from tests.unit.cluster.gateway_grpc.test_engine_doors import doors_over

PROMPT = "abcabcabcabdabcabcabe"


async def answer(options: EngineOptions, lead: Lead | None = None) -> Any:
    """Through engine, stream, gateway and gRPC door."""
    async with doors_over(EngineService(options, ranks=lead)) as doors:
        return await doors.stub.Generate(
            pb.GenerateRequest(prompt=PROMPT, max_tokens=24, temperature=0, logprobs=20)
        )


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
async def test_a_client_of_two_ranks_sees_the_scores_of_one_process(
    tmp_path: Path, kind: str
) -> None:
    """In fp32, drafted, the prompt in chunks."""
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(CONFIGS[kind])
    model.save_pretrained(tmp_path)
    make_tokenizer(model.config.vocab_size).save_pretrained(tmp_path)
    options = EngineOptions(
        str(tmp_path),
        "v0",
        tensor_parallel_size=2,
        dtype="float32",
        threads=1,
        max_model_len=64,
        max_num_batched_tokens=16,
        speculative=DrafterConfig("ngram"),
        placement="colocated",
        depth=4,
        enforce_eager=True,
    )
    whole = await answer(replace(options, tensor_parallel_size=1))
    lead = Lead(2, PATIENCE)
    rank = CONTEXT.Process(target=be_rank, args=(options, lead.rendezvous, 1), daemon=True)
    rank.start()
    try:
        cut = await answer(options, lead)
    finally:
        lead.close()
        rank.join(10.0)
        rank.kill()
        rank.join()
    assert cut.speculation.drafted > 0
    assert cut.text == whole.text
    for ours, theirs in zip(cut.logprobs, whole.logprobs, strict=True):
        assert len(ours.top) == 20
        for mine, other in zip((ours, *ours.top), (theirs, *theirs.top), strict=True):
            assert mine.token == other.token
            assert abs(mine.logprob - other.logprob) <= ATOL
