"""A target cut over ranks writes what it writes whole: logits, features and texts (law L1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MixtralConfig,
    OlmoeConfig,
    Qwen2Config,
    Qwen3Config,
)

from actors.engine.attention import ATTENTION
from actors.engine.loading import load_model
from actors.engine.profile import profile
from actors.engine.target import Target
from actors.exchange.compat import target_digest
from actors.exchange.local import LocalPort
from tests.drafters.feature_receiver import FeatureReceiver
from tests.law.harness import SAMPLED, SchedulePort, plain, request, run
from tests.ranks import Recorded, engine_over, group

TINY: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "eos_token_id": None,
    "bos_token_id": None,
    "pad_token_id": None,
}
EXPERTS: dict[str, Any] = {"intermediate_size": 96, "num_experts_per_tok": 2}
CONFIGS = {
    "llama": LlamaConfig(**TINY, intermediate_size=128, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**TINY, intermediate_size=131),  # not even, and biases
    "qwen3": Qwen3Config(**TINY, intermediate_size=128, head_dim=16),
    "mixtral": MixtralConfig(**TINY, **EXPERTS, num_local_experts=4),
    "olmoe": OlmoeConfig(**TINY, **EXPERTS, num_experts=4),
}
PROMPTS = {
    "greedy": [(5 * i + 2) % 128 for i in range(21)],
    "sampled": [3, 1, 4],
    "long": [(7 * i) % 128 for i in range(50)],
}
TAPS = (0, 1, 2)
DEPTHS = (0, 3, 1, 4, 2)
ATOL = 1e-5  # of logits in fp32; two orders above what is seen


def drafting_port(texts: dict[str, list[int]]) -> tuple[SchedulePort, FeatureReceiver]:
    """Blocks that are right but for every fifth token, in lengths that differ by row and step."""
    wholes = [[*PROMPTS[name], *texts[name]] for name in PROMPTS]

    def next_token(prefix: Any, params: Any) -> int:
        length = len(prefix)
        for whole in wholes:
            if list(prefix) == whole[:length] and length < len(whole):
                return whole[length] if length % 5 else (whole[length] + 1) % 128
        return 0

    drafter = FeatureReceiver(TAPS, 128, next_token)
    return SchedulePort(LocalPort(drafter), DEPTHS), drafter


def requests() -> list[Any]:
    return [
        request(name, prompt, SAMPLED) if name == "sampled" else request(name, prompt)
        for name, prompt in PROMPTS.items()
    ]


@pytest.fixture(scope="module", params=list(CONFIGS))
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """The same requests through the whole model and through one in two."""
    folder = save(CONFIGS[request.param], tmp_path_factory.mktemp(request.param))
    whole_model = load_model(folder, None, torch.float32, "cpu")
    texts = {r.request_id: plain(whole_model, r.prompt_ids, r.sampling) for r in requests()}
    whole_model.set_attn_implementation(ATTENTION)
    with group(folder, 2) as cut:
        both: dict[str, Any] = {"texts": texts, "kind": request.param}
        for name in ("whole", "cut"):
            port, drafter = drafting_port(texts)
            engine = (
                cut.engine(port, max_rows=24)
                if name == "cut"
                else engine_over(Target(whole_model, port.taps), port, max_rows=24)
            )
            account = Recorded(engine)
            both[name] = (account, drafter, run(engine, *requests()))
        yield both


def save(config: Any, folder: Path) -> str:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return str(folder)


def test_two_ranks_write_the_texts_of_one(pair: dict[str, Any]) -> None:
    assert pair["cut"][2] == pair["whole"][2] == pair["texts"]


def test_two_ranks_give_the_logits_of_one_in_every_step(pair: dict[str, Any]) -> None:
    """Chunked prefill, ragged decode with drafts, right ones and wrong ones."""
    cut, whole = pair["cut"][0], pair["whole"][0]
    stats = cut.engine.stats
    assert 0 < stats.accepted < stats.drafted
    assert len(cut.logits) == len(whole.logits)
    for ours, theirs in zip(cut.logits, whole.logits, strict=True):
        torch.testing.assert_close(ours, theirs, atol=ATOL, rtol=0.0)


def test_taps_of_two_ranks_return_the_whole_rows_of_one(pair: dict[str, Any]) -> None:
    cut, whole = pair["cut"][1], pair["whole"][1]
    assert cut.faults == whole.faults == []
    assert len(cut.log) == len(PROMPTS)
    for key, theirs in zip(cut.log, whole.log, strict=True):
        ours = cut.received(key)
        assert ours.shape[1] == len(TAPS) * TINY["hidden_size"]
        # Rounded to bf16: at most one unit in the last place apart, where they are not next to 0.
        torch.testing.assert_close(ours, whole.received(theirs), atol=ATOL, rtol=2**-7)


def test_each_rank_keeps_only_its_own_heads(pair: dict[str, Any]) -> None:
    """But for OLMoE, which norms all heads together and is cut between them and the experts."""
    share = 1 if pair["kind"] == "olmoe" else 2
    cut, whole = pair["cut"][0].engine, pair["whole"][0].engine
    for ours, theirs in zip(cut.pool.keys, whole.pool.keys, strict=True):
        assert ours.shape[1] * share == theirs.shape[1]


def test_the_costs_of_a_cut_target_are_measured_on_all_its_ranks(pair: dict[str, Any]) -> None:
    engine = pair["cut"][0].engine
    costs = profile(engine.target, 256, engine.pool)
    assert {1, 16} <= {sample.rows for sample in costs}
    assert all(sample.seconds > 0 for sample in costs)


def test_a_drafter_need_not_know_how_its_target_is_cut(pair: dict[str, Any]) -> None:
    cut, whole = (pair[name][0].engine.target.model.config.to_dict() for name in ("cut", "whole"))
    assert target_digest(cut) == target_digest(whole)
