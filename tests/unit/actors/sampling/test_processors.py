"""Bias, penalties and the min_tokens mask: one place, per row, in a fixed order (S17)."""

from __future__ import annotations

import math

import pytest
import torch

from actors.sampling.params import SamplingParams
from actors.sampling.processors import Processors, must_process
from tests.unit.actors.sampling.reference import process

torch.set_num_threads(1)
EOS = frozenset([2])
ROW = torch.tensor([1.0, -1.0, 0.5, 2.0, 0.0, -3.0], dtype=torch.float64)


def make_processors(params: SamplingParams, tokens: list[int], prompt_len: int) -> Processors:
    return Processors(params, tokens, prompt_len, EOS, len(tokens) - prompt_len)


PARAMS = {
    "repetition": SamplingParams(repetition_penalty=1.5),
    "presence": SamplingParams(presence_penalty=0.7),
    "frequency": SamplingParams(frequency_penalty=-0.3),
    "bias": SamplingParams(logit_bias=((3, -100.0), (1, 2.5))),
    "min_tokens": SamplingParams(min_tokens=3, stop_token_ids=frozenset([4])),
    "all": SamplingParams(
        repetition_penalty=1.3,
        presence_penalty=0.4,
        frequency_penalty=0.2,
        logit_bias=((0, -4.0), (5, 7.0), (2, 50.0)),
        min_tokens=4,
        stop_token_ids=frozenset([4]),
    ),
}


@pytest.mark.parametrize("name", PARAMS)
def test_every_row_sees_the_history_and_the_block_before_it(name: str) -> None:
    params, prompt, written = PARAMS[name], [0, 3, 3], [5, 5, 1]
    walk = make_processors(params, [*prompt, *written], 3)
    history = [*prompt, *written]
    for accepted in (3, 0, 1, 4):
        expected = process(ROW.tolist(), params, history, 3, EOS)
        assert walk(ROW).tolist() == pytest.approx(expected, rel=1e-15)
        walk.advance(accepted)
        history.append(accepted)


def test_bias_comes_before_the_repetition_penalty() -> None:
    params = SamplingParams(repetition_penalty=2.0, logit_bias=((1, 3.0),))
    assert make_processors(params, [1], 0)(ROW)[1].item() == (-1.0 + 3.0) / 2


def test_repetition_counts_the_prompt_and_the_others_do_not() -> None:
    params = SamplingParams(repetition_penalty=2.0, presence_penalty=1.0, frequency_penalty=1.0)
    out = make_processors(params, [3], 1)(ROW)
    assert out[3].item() == 1.0
    assert out[0].item() == 1.0


def test_the_min_tokens_mask_goes_when_the_output_is_long_enough() -> None:
    params = SamplingParams(min_tokens=2, stop_token_ids=frozenset([4]))
    walk = make_processors(params, [0, 0, 0], 2)
    out = walk(ROW)
    assert out[2].item() == out[4].item() == -math.inf
    walk.advance(0)
    assert torch.equal(walk(ROW), ROW)


def test_the_mask_beats_any_bias() -> None:
    params = SamplingParams(min_tokens=1, logit_bias=((2, 100.0),))
    assert make_processors(params, [0], 1)(ROW)[2].item() == -math.inf


def test_the_raw_logits_are_never_written_to() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        row = ROW.to(dtype)
        before = row.clone()
        make_processors(PARAMS["all"], [0, 5], 1)(row)
        assert torch.equal(row, before)


def test_half_precision_becomes_fp32_and_fp64_stays() -> None:
    for params in (SamplingParams(), PARAMS["all"]):
        walk = make_processors(params, [0, 5], 1)
        assert walk(ROW.half()).dtype == walk(ROW.bfloat16()).dtype == torch.float32
        assert walk(ROW).dtype == torch.float64


def test_ids_outside_the_row_are_left_out() -> None:
    """A drafter's vocabulary may be smaller than the target's."""
    params = SamplingParams(
        repetition_penalty=2.0,
        frequency_penalty=1.0,
        logit_bias=((900, 1.0),),
        min_tokens=9,
        stop_token_ids=frozenset([700]),
    )
    out = make_processors(params, [500, 3], 0)(ROW)
    assert out[3].item() == 0.0
    assert out[2].item() == -math.inf


def test_nothing_to_do_is_said_so() -> None:
    assert not must_process(SamplingParams(), 0)
    assert must_process(SamplingParams(min_tokens=1), 0)
    assert not must_process(SamplingParams(min_tokens=1), 1)
    for name in ("repetition", "presence", "frequency", "bias"):
        assert must_process(PARAMS[name], 10_000)
