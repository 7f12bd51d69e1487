"""Features are the target's own hidden states, row by row (contract of Commit)."""

from __future__ import annotations

import pytest
import torch

from tests.drafters.feature_receiver import FeatureReceiver
from tests.law.harness import make_engine, plain, request, run
from tests.models import make_rand

MODEL = make_rand(layers=3)
PROMPT = [(5 * i + 2) % 128 for i in range(21)]
TAPS = (0, 1, 3)


@torch.inference_mode()
def hidden_states(tokens: list[int]) -> torch.Tensor:
    """A no-cache forward's taps, pre-norm, bf16 [rows, taps * hidden]."""
    MODEL.set_attn_implementation("eager")
    caught: dict[int, torch.Tensor] = {}
    layers = MODEL.get_decoder().layers
    hooks = [
        layers[i].register_forward_hook(
            lambda _m, _a, out, i=i: caught.__setitem__(
                i + 1, out[0] if isinstance(out, tuple) else out
            )
        )
        for i in range(len(layers))
    ]
    out = MODEL(input_ids=torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    for hook in hooks:
        hook.remove()
    caught[0] = out.hidden_states[0]
    return torch.cat([caught[t][0] for t in TAPS], dim=-1).to(torch.bfloat16)


@pytest.mark.parametrize("max_rows", [8, 512])
@pytest.mark.parametrize("k", [0, 2, 4])
def test_each_commit_carries_rows_from_len_minus_1_to_from_len_plus_m_minus_1(
    k: int, max_rows: int
) -> None:
    """Also in chunked prefill, which taps chunk by chunk."""
    own = plain(MODEL, PROMPT)
    whole = [*PROMPT, *own]

    def next_token(prefix, params) -> int:
        return whole[len(prefix)] if len(prefix) < len(whole) else 0

    drafter = FeatureReceiver(taps=TAPS, next_token=next_token, vocab_size=128, k=k)
    engine = make_engine(MODEL, drafter, 4, max_rows=max_rows, max_num_seqs=4)
    assert run(engine, request("a", PROMPT)) == {"a": own}
    expected = hidden_states(whole)
    (record,) = drafter.records.values()
    rows = record.rows()
    assert record.from_lens[0] == len(PROMPT)
    assert rows.dtype == torch.bfloat16
    assert rows.shape[0] >= len(PROMPT) + 5
    torch.testing.assert_close(rows.float(), expected[: rows.shape[0]].float(), atol=0.02, rtol=0.02)


def test_the_last_tap_is_taken_before_the_final_norm() -> None:
    """S32's part that concerns the target: transformers' own hidden_states[L] is post-norm."""
    tokens = [*PROMPT]
    MODEL.set_attn_implementation("eager")
    with torch.inference_mode():
        out = MODEL(input_ids=torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    ours = hidden_states(tokens)[:, -64:].float()
    assert (ours - out.hidden_states[-1][0].float()).abs().max() > 0.1
