"""Mixtures of experts whose routing drops nothing: each row's text is its own (law L1)."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    MixtralConfig,
    OlmoeConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3MoeConfig,
)

from actors.engine.loading import load_model
from tests.drafters.anti import AntiDrafter
from tests.drafters.exact_k import ExactKDrafter
from tests.law.harness import GREEDY, SAMPLED, assert_pools_full, make_engine, plain, request, run

TINY = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "num_experts_per_tok": 2,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}
CONFIGS: dict[str, PreTrainedConfig] = {
    "mixtral": MixtralConfig(**TINY, num_local_experts=4),
    "qwen3-moe": Qwen3MoeConfig(
        **TINY, num_experts=4, moe_intermediate_size=48, head_dim=16, decoder_sparse_step=1
    ),
    "olmoe": OlmoeConfig(**TINY, num_experts=4),
}
PROMPTS = [[3, 1, 4, 1, 5], [(7 * i) % 128 for i in range(30)], [9, 2, 6]]


@pytest.fixture(
    scope="module",
    params=[(name, dtype) for name in CONFIGS for dtype in (torch.float64, torch.float32)],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> PreTrainedModel:
    """As it is served: from a checkpoint, by the loader. In fp32 the experts are one grouped
    product; the seeds here have no near-tie."""
    name, dtype = request.param
    folder = tmp_path_factory.mktemp(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(CONFIGS[name]).save_pretrained(folder)
    loaded: PreTrainedModel = load_model(str(folder), None, dtype, "cpu")
    return loaded


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "coupled"])
def test_speculation_beside_other_requests_writes_what_standard_decode_writes(
    model: PreTrainedModel, sampling
) -> None:
    own = [plain(model, prompt, sampling) for prompt in PROMPTS]

    def next_token(prefix, params) -> int:
        for prompt, text in zip(PROMPTS, own, strict=True):
            whole = [*prompt, *text]
            if list(prefix) == whole[: len(prefix)] and len(prefix) < len(whole):
                return whole[len(prefix)]
        return 0

    for drafter in (None, ExactKDrafter(next_token, 128, k=2), AntiDrafter(next_token, 128)):
        engine = make_engine(model, drafter, depth=4, max_rows=16, max_num_seqs=4)
        engine.self_check()
        texts = run(engine, *(request(str(i), p, sampling) for i, p in enumerate(PROMPTS)))
        assert [texts[str(i)] for i in range(len(PROMPTS))] == own
        assert engine.stats.drafted > 0 or drafter is None
        assert_pools_full(engine)
