"""A window limits what a row sees and never what can be rolled back (pitfalls S27)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from actors.sampling.params import SamplingParams
from tests.drafters.exact_k import ExactKDrafter
from tests.law.harness import GREEDY, assert_pools_full, make_engine, request, run


def make_mistral(window: int = 8) -> MistralForCausalLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = MistralForCausalLM(
            MistralConfig(
                vocab_size=128,
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=16,
                sliding_window=window,
                initializer_range=0.3,
                max_position_embeddings=256,
                bos_token_id=None,
                eos_token_id=None,
                pad_token_id=None,
            )
        )
    return model.to(torch.float64).eval()


MODEL = make_mistral()


@torch.inference_mode()
def reference(prompt: list[int], attention: str) -> list[int]:
    """Greedy, one whole forward a token, by transformers' own attention."""
    MODEL.set_attn_implementation(attention)
    tokens = list(prompt)
    while len(tokens) < len(prompt) + GREEDY.max_tokens:
        logits = MODEL(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("length", [12, 5])
@pytest.mark.parametrize("k", [0, 1, 4])
def test_rounds_are_rolled_back_past_the_windows_edge(length: int, k: int) -> None:
    """Prompt 12 starts beyond the window, prompt 5 crosses it while it writes."""
    prompt = [(7 * i + 2) % 128 for i in range(length)]
    own = reference(prompt, "eager")
    assert own == reference(prompt, "sdpa")

    def next_token(prefix: Sequence[int], params: SamplingParams) -> int:
        return [*prompt, *own, 0][len(prefix)]

    for prefix in (True, False):
        engine = make_engine(
            MODEL, ExactKDrafter(next_token, vocab_size=128, k=k), 4, block_size=4, prefix=prefix
        )
        # Twice: the second time what the window no longer shows is shared as well.
        for _ in range(2):
            assert run(engine, request("a", prompt)) == {"a": own}
        assert engine.stats.drafted > engine.stats.accepted or k == 4
        assert (engine.stats.prefix_hits > 0) == prefix
        assert_pools_full(engine)


def test_the_window_is_what_the_model_was_made_with() -> None:
    """Else the test above would hold for a model without one."""
    prompt = [(7 * i + 2) % 128 for i in range(12)]
    wide = make_mistral(window=200)
    wide.set_attn_implementation("sdpa")
    MODEL.set_attn_implementation("sdpa")
    with torch.inference_mode():
        ours, theirs = (
            m(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1]
            for m in (MODEL, wide)
        )
    assert (ours - theirs).abs().max() > 0.1
