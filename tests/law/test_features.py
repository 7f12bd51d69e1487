"""Features are the target's own hidden states, row by row (contract of Commit)."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaForCausalLM

from tests.drafters.feature_receiver import FeatureReceiver
from tests.law.harness import make_engine, plain, request, run
from tests.models import make_rand

MODEL = make_rand(layers=3)
PROMPT = [(5 * i + 2) % 128 for i in range(21)]
TAPS = (0, 1, 3)


@torch.inference_mode()
def hidden_states(model: LlamaForCausalLM, tokens: list[int]) -> torch.Tensor:
    """A no-cache forward's taps, pre-norm, bf16 [rows, taps * hidden]."""
    model.set_attn_implementation("sdpa")
    caught: dict[int, torch.Tensor] = {}
    layers = model.get_decoder().layers
    hooks = [
        layers[i].register_forward_hook(
            lambda _m, _a, out, i=i: caught.__setitem__(
                i + 1, out[0] if isinstance(out, tuple) else out
            )
        )
        for i in range(len(layers))
    ]
    out = model(input_ids=torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    for hook in hooks:
        hook.remove()
    caught[0] = out.hidden_states[0]
    return torch.cat([caught[t][0] for t in TAPS], dim=-1).to(torch.bfloat16)


@pytest.mark.parametrize("max_rows", [8, 512])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_each_commit_carries_rows_from_len_minus_1_to_from_len_plus_m_minus_1(
    depth: int, max_rows: int
) -> None:
    """Also in chunked prefill, which taps chunk by chunk."""
    own = plain(MODEL, PROMPT)
    whole = [*PROMPT, *own]

    def next_token(prefix, params) -> int:
        return whole[len(prefix)] if len(prefix) < len(whole) else 0

    drafter = FeatureReceiver(TAPS, 128, next_token)
    engine = make_engine(MODEL, drafter, depth, max_rows=max_rows, max_num_seqs=4)
    assert run(engine, request("a", PROMPT)) == {"a": own}
    assert engine.stats.accepted == engine.stats.drafted > 0
    assert drafter.faults == []  # contiguous: each commit brought rows from_len-1 …
    expected = hidden_states(MODEL, whole)
    (key,) = drafter.log
    rows = drafter.received(key)
    assert rows.dtype == torch.bfloat16
    assert rows.shape[0] > len(PROMPT)
    # fp64 states of two batch shapes, rounded to bf16: at most one unit in the last place apart.
    torch.testing.assert_close(rows, expected[: rows.shape[0]], atol=0.0, rtol=2**-7)


def test_the_last_tap_is_taken_before_the_final_norm() -> None:
    """S32's part that concerns the target: transformers' own hidden_states[L] is post-norm."""
    tokens = [*PROMPT]
    MODEL.set_attn_implementation("sdpa")
    with torch.inference_mode():
        out = MODEL(input_ids=torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    ours = hidden_states(MODEL, tokens)[:, -64:].float()
    assert (ours - out.hidden_states[-1][0].float()).abs().max() > 0.1
