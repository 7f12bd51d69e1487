"""What a tap is, and whose rows are kept: each committed row's own hidden state, and no other's
(pitfalls S32, S41)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch

from actors.contracts import SessionKey
from actors.sampling.params import SamplingParams
from tests.drafters.feature_receiver import FeatureReceiver
from tests.law.harness import make_engine, plain, request, run
from tests.models import make_rand

MODEL = make_rand(layers=3)
TAPS = (0, 1, 2, 3)
PROMPTS = {
    "a": [(5 * i + 2) % 128 for i in range(21)],
    "b": [(11 * i + 7) % 128 for i in range(6)],
}
UNIT = 2.0**-7
"""States in fp64 of two batch shapes, in bf16, are at most one unit in the last place apart."""


@torch.inference_mode()
def hidden_states(tokens: Sequence[int]) -> list[torch.Tensor]:
    """transformers' own, [rows, hidden] of each boundary; the last before the final norm."""
    MODEL.set_attn_implementation("sdpa")
    last: list[torch.Tensor] = []
    hook = MODEL.model.norm.register_forward_pre_hook(lambda module, args: last.append(args[0]))
    out = MODEL(input_ids=torch.tensor([list(tokens)]), use_cache=False, output_hidden_states=True)
    hook.remove()
    return [*(state[0] for state in out.hidden_states[:-1]), last[0][0]]


def texts() -> dict[str, list[int]]:
    return {name: [*prompt, *plain(MODEL, prompt)] for name, prompt in PROMPTS.items()}


def received(drafter: FeatureReceiver) -> dict[str, torch.Tensor]:
    """Rows by request, over all of its sessions; a test opens one for each."""
    found: dict[str, SessionKey] = {key.request: key for key in drafter.log}
    assert len(found) == len(drafter.log)
    return {name: drafter.received(key) for name, key in found.items()}


def test_every_tap_is_the_models_own_hidden_state_of_that_number() -> None:
    """S32: index i is what enters layer i, whatever is tapped beside it; the last is what leaves
    the last layer, before the final norm."""
    tokens = PROMPTS["a"]
    wanted = hidden_states(tokens)
    for taps in (TAPS, (3,), (2, 0)):
        drafter = FeatureReceiver(taps, 128)
        run(make_engine(MODEL, drafter), request("a", tokens))
        rows = received(drafter)["a"][: len(tokens)]
        expected = torch.cat([wanted[tap] for tap in taps], -1).to(torch.bfloat16)
        assert torch.equal(rows, expected), taps
    assert all(not torch.equal(a.bfloat16(), b.bfloat16()) for a, b in pairwise(wanted))


@pytest.mark.parametrize("wrong_every", [1, 2, 3])
@pytest.mark.parametrize("depth", [1, 3, 4])
def test_rejected_rows_leave_no_features_and_accepted_ones_leave_each_its_own(
    depth: int, wrong_every: int
) -> None:
    """S41: two requests share the forwards, and drafts are refused all the time."""
    whole = texts()

    def next_token(prefix: Sequence[int], params: SamplingParams) -> int:
        text = next(t for t in whole.values() if t[0] == prefix[0])
        right = text[len(prefix)] if len(prefix) < len(text) else 0
        return (right + 1) % 128 if len(prefix) % wrong_every == 0 else right

    drafter = FeatureReceiver(TAPS, 128, next_token)
    engine = make_engine(MODEL, drafter, depth, max_rows=16)
    run(engine, *(request(name, prompt) for name, prompt in PROMPTS.items()))
    assert engine.stats.drafted > engine.stats.accepted
    assert (engine.stats.accepted > 0) == (wrong_every > 1)
    assert drafter.faults == []
    for name, rows in received(drafter).items():
        expected = torch.cat(hidden_states(whole[name]), -1).to(torch.bfloat16)
        assert rows.shape[0] == len(whole[name]) - 1  # the newest token has no row yet
        torch.testing.assert_close(rows, expected[: rows.shape[0]], atol=0.0, rtol=UNIT)
