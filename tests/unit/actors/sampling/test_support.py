"""min_p, top_k and top_p keep what a full sort in fp64 keeps."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.sampling.params import SamplingParams
from actors.sampling.support import support
from tests.unit.actors.sampling.reference import survivors

torch.set_num_threads(1)


def kept(row: torch.Tensor, params: SamplingParams) -> list[int]:
    values, ids = support(row, float(row.max()), params)
    if ids is None:
        assert torch.equal(values, row)
        return list(range(len(row)))
    assert torch.equal(values, row[ids])
    assert len(set(ids.tolist())) == len(ids)
    return sorted(ids.tolist())


def make_law(*p: float) -> torch.Tensor:
    return torch.tensor(p, dtype=torch.float64).log()


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.2, 0.7, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 3, 50, 300, 10_000]),
    top_p=st.sampled_from([1.0, 0.999, 0.9, 0.5, 1e-9]),
    min_p=st.sampled_from([0.0, 1e-9, 1e-3, 0.05, 0.5, 1.0]),
)


@settings(max_examples=120, deadline=None)
@given(
    PARAMS,
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 40, 900, 4096]),
    st.sampled_from([0.01, 0.5, 3.0, 12.0]),
    st.booleans(),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_the_survivors_are_those_of_a_full_sort(
    params: SamplingParams, seed: int, length: int, spread: float, tied: bool, dtype: torch.dtype
) -> None:
    row = torch.randn(length, generator=torch.Generator().manual_seed(seed)).to(dtype) * spread
    if tied:
        row = (row * 2).round() / 2
    assert kept(row, params) == survivors(row.tolist(), params)


@pytest.mark.parametrize("length", [49152, 50257])
@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0])
@pytest.mark.parametrize("top_p", [0.1, 0.9, 0.9999])
def test_a_nucleus_of_any_width_in_a_real_vocabulary_is_exact(
    length: int, spread: float, top_p: float
) -> None:
    row = torch.randn(length, generator=torch.Generator().manual_seed(length)) * spread
    params = SamplingParams(top_p=top_p)
    assert kept(row, params) == survivors(row.tolist(), params)


def test_top_p_keeps_the_token_that_crosses_and_at_least_one() -> None:
    law = make_law(0.5, 0.3, 0.15, 0.05)
    assert kept(law, SamplingParams(top_p=0.6)) == [0, 1]
    assert kept(law, SamplingParams(top_p=0.49)) == [0]
    assert kept(law, SamplingParams(top_p=1e-12)) == [0]
    assert kept(torch.zeros(4), SamplingParams(top_p=0.5)) == [0, 1]


def test_top_p_counts_on_what_top_k_and_min_p_left() -> None:
    """p = (.4, .3, .2, .1): of the two largest the first has mass .571, so .5 keeps one."""
    law = make_law(0.4, 0.3, 0.2, 0.1)
    assert kept(law, SamplingParams(top_p=0.5)) == [0, 1]
    assert kept(law, SamplingParams(top_p=0.5, top_k=2)) == [0]
    assert kept(law, SamplingParams(top_p=0.5, min_p=0.7)) == [0]


def test_ties_at_a_cut_go_to_the_lowest_ids() -> None:
    row = torch.tensor([1.0, 2.0, 1.0, 2.0, 1.0, 1.0])
    assert kept(row, SamplingParams(top_k=3)) == [0, 1, 3]
    assert kept(row, SamplingParams(top_k=5)) == [0, 1, 2, 3, 4]
    assert kept(torch.zeros(10_000), SamplingParams(top_p=0.3)) == list(range(3000))


def test_min_p_is_relative_to_the_most_likely_after_temperature() -> None:
    law = make_law(0.5, 0.3, 0.15, 0.05)
    assert kept(law, SamplingParams(min_p=0.4)) == [0, 1]
    assert kept(law, SamplingParams(min_p=0.4, temperature=2.0)) == [0, 1, 2]
    assert kept(law, SamplingParams(min_p=1.0)) == [0]


def test_masked_tokens_never_survive_a_cut() -> None:
    row = torch.tensor([-math.inf, 1.0, -math.inf, 0.0])
    assert kept(row, SamplingParams(top_p=0.999)) == [1, 3]
    assert kept(row, SamplingParams(min_p=1e-300)) == [1, 3]
