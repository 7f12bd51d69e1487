"""The bounded search picks the token that scoring the whole row in fp64 picks."""

from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.sampling import choose, race
from actors.sampling.choose import BadLogits, choose_row
from actors.sampling.params import MAX_SEED, SamplingParams
from tests.unit.actors.sampling import reference

torch.set_num_threads(1)


def make_row(kind: str, length: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    row = torch.randn(length, generator=generator)
    if kind == "extreme":
        row *= 1e4
    elif kind == "huge":
        row *= 1e37
    elif kind == "sharp":
        row[seed % length] = 40.0
    elif kind == "tied":
        row = row.round()
    elif kind == "uniform":
        row.zero_()
    elif kind == "masked":
        row[torch.rand(length, generator=generator) < 0.9] = -math.inf
        row[seed % length] = 0.0
    return row


KINDS = ["plain", "extreme", "huge", "sharp", "tied", "uniform", "masked"]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from([1, 3, 30, 257, 4096, 6144]),
    st.integers(0, 2**31),
    st.integers(0, MAX_SEED),
    st.integers(0, 2**17),
    st.sampled_from([5e-324, 1e-40, 1e-6, 0.1, 0.7, 1.0, 2.0, 100.0]),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
)
def test_the_token_is_the_full_rows_in_fp64(
    kind: str,
    length: int,
    row_seed: int,
    seed: int,
    position: int,
    temperature: float,
    dtype: torch.dtype,
) -> None:
    row = make_row(kind, length, row_seed)
    if kind == "huge" and dtype == torch.float16:
        row /= 1e34
    params = SamplingParams(temperature=temperature, seed=seed)
    row = row.to(dtype)
    expected = reference.race(row.double().tolist(), range(length), params, position)
    assert choose_row(row, params, position) == expected


@pytest.mark.parametrize("spread", [0.0, 0.5, 2.5, 6.0])
def test_the_token_is_the_full_rows_in_a_real_vocabulary(spread: float) -> None:
    rng = random.Random(str(spread))
    for length in (49152, 50257):
        for row_seed in range(4):
            row = make_row("plain", length, row_seed) * spread
            params = SamplingParams(seed=rng.getrandbits(64))
            expected = reference.race(row.double().tolist(), range(length), params, 99)
            assert choose_row(row, params, 99) == expected


def test_only_a_handful_is_scored_in_fp64(monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[int] = []
    score = choose.score
    monkeypatch.setattr(choose, "score", lambda *a: scored.append(a[-1]) or score(*a))
    rows = [make_row("plain", 49152, s) * spread for s in range(5) for spread in (0.0, 1.0, 5.0)]
    for i, row in enumerate(rows * 10):
        choose_row(row, SamplingParams(seed=i), i)
    assert 150 <= len(scored) < 150 * 3


def test_a_draw_far_out_in_the_tail_is_found() -> None:
    """Rows whose winner has a tiny probability: the token with the least v of the row is given
    e^-10, far below the top, and wins or loses as fp64 says."""
    wins = 0
    for seed in range(300):
        params = SamplingParams(seed=seed)
        v = reference.uniforms(seed, 5, range(4096))
        row = torch.full((4096,), -60.0, dtype=torch.float64)
        row[17], row[int(v.argmin())] = 0.0, -8.5
        expected = reference.race(row.tolist(), range(4096), params, 5)
        wins += expected == int(v.argmin())
        assert choose_row(row, params, 5) == expected
    assert 50 < wins < 250


@settings(max_examples=150, deadline=None)
@given(
    st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.5, 1.0, 1.5]),
        top_k=st.sampled_from([0, 1, 10, 40, 500]),
        top_p=st.sampled_from([1.0, 0.95, 0.6]),
        min_p=st.sampled_from([0.0, 0.01, 0.3]),
        repetition_penalty=st.sampled_from([1.0, 1.3]),
        presence_penalty=st.sampled_from([0.0, 0.5]),
        frequency_penalty=st.sampled_from([0.0, -0.5]),
        logit_bias=st.sampled_from([(), ((3, 5.0), (9, -100.0))]),
        min_tokens=st.sampled_from([0, 3, 50]),
        seed=st.integers(0, MAX_SEED),
    ),
    st.integers(0, 2**31),
    st.lists(st.integers(0, 63), min_size=1, max_size=12),
)
def test_processors_cuts_and_noise_together_are_the_definition(
    params: SamplingParams, row_seed: int, tokens: list[int]
) -> None:
    row = torch.randn(1000, generator=torch.Generator().manual_seed(row_seed)).double() * 3
    eos, prompt_len = frozenset([2, 7]), len(tokens) // 2
    expected = reference.choose(row, params, tokens, prompt_len, eos)
    assert choose_row(row, params, len(tokens), tokens, prompt_len, eos) == expected


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from([1, 3, 30, 257, 4096]),
    st.integers(0, 2**31),
    st.integers(0, MAX_SEED),
    st.sampled_from([1e-40, 0.1, 0.7, 1.0, 2.0, 100.0]),
    st.sampled_from([1e-300, 1e-9, 0.1, 0.5, 0.9, 0.999, 1 - 2.0**-40]),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_a_nucleus_that_is_not_looked_for_gives_the_same_token(
    kind: str,
    length: int,
    row_seed: int,
    seed: int,
    temperature: float,
    top_p: float,
    dtype: torch.dtype,
) -> None:
    row = make_row(kind, length, row_seed).to(dtype)
    params = SamplingParams(temperature=temperature, top_p=top_p, seed=seed)
    values = row.double().tolist()
    expected = reference.race(values, reference.survivors(values, params), params, 7)
    assert choose_row(row, params, 7) == expected


@pytest.mark.parametrize("top_p", [0.25, 0.5, 0.75])
def test_a_nucleus_that_ends_between_two_tokens_is_not_guessed(top_p: float) -> None:
    """The mass before the next token is top_p to the last bit: fp32 must not decide."""
    row = torch.zeros(64)
    cut = int(64 * top_p)
    assert choose.in_nucleus(cut - 2, row, torch.ones(64), top_p) is True
    assert choose.in_nucleus(cut, row, torch.ones(64), top_p) is None
    assert choose.in_nucleus(cut + 1, row, torch.ones(64), top_p) is False
    chosen = {choose_row(row, SamplingParams(top_p=top_p, seed=s), 1) for s in range(2000)}
    assert chosen == set(range(cut))


@pytest.mark.parametrize("spread", [0.5, 2.0, 5.0])
def test_the_nucleus_of_a_real_vocabulary_is_hardly_ever_looked_for(
    spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the token is the one that looking for it gives."""
    looked: list[int] = []
    support = choose.support
    rows = [make_row("plain", length, s) * spread for s in range(5) for length in (49152, 50257)]
    draws = [(row, SamplingParams(top_p=0.9, seed=s)) for row in rows for s in range(10)]
    with monkeypatch.context() as patch:
        patch.setattr(choose, "support", lambda *given: looked.append(1) or support(*given))
        quick = [choose_row(row, params, 3) for row, params in draws]
    assert len(looked) <= 2
    monkeypatch.setattr(choose, "_nucleus_winner", lambda *given: None)
    assert [choose_row(row, params, 3) for row, params in draws] == quick


def test_a_tiny_temperature_is_neither_nan_nor_empty() -> None:
    """S20: fp16 logits whose quotient overflows."""
    row = torch.tensor([50.0, 49.0, 0.0], dtype=torch.float16)
    for temperature in (1e-4, 1e-6, 5e-324):
        for cut in ({}, {"top_p": 0.9}, {"top_k": 2}, {"min_p": 0.1}):
            params = SamplingParams(temperature=temperature, seed=1, **cut)
            assert {choose_row(row, params, i) for i in range(50)} == {0}


def test_greedy_is_a_mask_and_not_a_temperature() -> None:
    """S19: tied maxima at T = 0 give the lowest id always; T left out samples at T = 1."""
    tied = torch.tensor([1.0, 1.0, 0.0])
    assert {choose_row(tied, SamplingParams(temperature=0.0, seed=s), s) for s in range(1000)} == {
        0
    }
    free = torch.randn(200, generator=torch.Generator().manual_seed(0))
    left_out = SamplingParams(top_k=50)
    assert left_out.temperature == 1.0
    texts = {
        tuple(choose_row(free, SamplingParams(top_k=50, seed=s), i) for i in range(8))
        for s in (1, 2)
    }
    assert len(texts) == 2


@pytest.mark.parametrize("length", [3, 4096, 49152])
def test_ties_go_to_the_lowest_id(length: int) -> None:
    row = torch.zeros(length)
    row[1:3] = 5.0
    assert choose_row(row, SamplingParams(temperature=0.0), 0) == 1


def test_the_noise_is_keyed_by_token_id_and_not_by_the_place_in_the_support() -> None:
    """A drafter's smaller or padded vocabulary, and any cut that keeps the winner, leave the draw
    alone: that is what couples the two sides."""
    row = torch.randn(49152, generator=torch.Generator().manual_seed(2)) * 2
    row[8192:] = -60.0
    for seed in range(40):
        token = choose_row(row, SamplingParams(seed=seed), 11)
        assert choose_row(row[:8192], SamplingParams(seed=seed), 11) == token
        padded = torch.cat((row, torch.full((37,), -math.inf)))
        assert choose_row(padded, SamplingParams(seed=seed), 11) == token
        assert choose_row(row, SamplingParams(seed=seed, top_k=8000), 11) == token


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=0.0)])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_no_token_comes_out_of_a_broken_row(params: SamplingParams, bad: float) -> None:
    """S52: argmax would return a NaN's index without a word."""
    row = torch.zeros(4096)
    row[777] = bad
    with pytest.raises(BadLogits, match="position 6 hold"):
        choose_row(row, params, 6)
    with pytest.raises(BadLogits, match="no token above -inf"):
        choose_row(torch.full((50,), -math.inf), params, 6)


def test_a_mask_does_not_hide_a_broken_row() -> None:
    row = torch.tensor([0.0, 0.0, math.nan])
    params = SamplingParams(min_tokens=5)
    with pytest.raises(BadLogits, match="NaN"):
        choose_row(row, params, 1, [0], 0, frozenset([2]))


def test_a_row_with_everything_masked_is_an_error_of_its_own() -> None:
    params = SamplingParams(min_tokens=5, stop_token_ids=frozenset([0, 1]))
    with pytest.raises(BadLogits, match="no token above -inf"):
        choose_row(torch.zeros(2), params, 0)


def test_it_works_under_inference_mode_and_after_it() -> None:
    row = torch.randn(6001, generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        inside = choose_row(row, SamplingParams(top_p=0.9, seed=4), 3)
    assert choose_row(row, SamplingParams(top_p=0.9, seed=4), 3) == inside


UNIFORMS = st.one_of(
    st.integers(0, 2**52 - 1),
    st.integers(0, 2**25),
    st.integers(2**52 - 2**25, 2**52 - 1),
    st.sampled_from([0, 1, 2**21, 2**21 - 1, 2**52 - 1]),
).map(lambda half: math.ldexp(2 * half + 1, -53))


def choose_with(uniforms: list[float], row: torch.Tensor) -> int:
    """The token of a row at T = 1 under noise given by hand, one v a token."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "token_codes", lambda size, device: torch.arange(size))
        patch.setattr(
            race,
            "high_bits",
            lambda key, codes: torch.tensor([int(uniforms[i] * 2**31) for i in codes.tolist()]),
        )
        patch.setattr(race, "uniform", lambda key, token: uniforms[token])
        return choose_row(row, SamplingParams(), 0)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.tuples(UNIFORMS, st.sampled_from([0.0, 0.0, 1e-9, -1e-9, 3e-5, -3e-5, 0.1, -2.0])),
        min_size=choose._FEW + 1,
        max_size=60,
    ),
    st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from(["bound", "score"]),
)
def test_no_arrangement_of_noise_and_logits_hides_the_winner(
    draws: list[tuple[float, float]], dtype: torch.dtype, tied: str
) -> None:
    """The bound at its worst: noise chosen by hand, both ends of (0, 1) included, and logits that
    put every token's bound, or every token's score, on the same value but for a hair."""
    uniforms = [v for v, _ in draws]
    level = [math.log(v) if tied == "bound" else math.log(-math.log1p(-v)) for v in uniforms]
    row = torch.tensor([a + b for a, (_, b) in zip(level, draws, strict=True)], dtype=dtype)
    got = choose_with(uniforms, row)
    values, top = row.double().tolist(), float(row.max())
    scores = [x - top - math.log(-math.log1p(-v)) for x, v in zip(values, uniforms, strict=True)]
    assert got == scores.index(max(scores))


def test_a_leader_whose_noise_ends_near_one_rules_out_nobody_it_loses_to() -> None:
    """v = 1 - 2^-53 has E = 36.7: the leader's bound is 36.7 times what it reaches."""
    uniforms = [1 - 2.0**-53, *[0.01] * 40]
    row = torch.full((41,), math.log(0.01) - 3.0, dtype=torch.float64)
    row[0] = 0.0
    assert choose_with(uniforms, row) == 1
