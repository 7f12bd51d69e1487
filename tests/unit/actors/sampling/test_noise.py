"""The noise is one function of (seed, position, token), everywhere the same, and looks random."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from scipy import stats

from actors.sampling import noise
from actors.sampling.noise import (
    gumbel,
    high_bits,
    mix64,
    noise_key,
    sub_seed,
    token_codes,
    uniform,
)
from actors.sampling.params import MAX_SEED
from tests.unit.actors.sampling.reference import uniforms

torch.set_num_threads(1)
CPU = torch.device("cpu")
EDGE_SEEDS = [0, 1, 2**31, 2**32 - 1, 2**53, 2**63, MAX_SEED]


def make_triples(count: int) -> list[tuple[int, int, int]]:
    rng = random.Random(5)
    edges = [(seed, pos, tok) for seed in EDGE_SEEDS for pos in (0, 1, 131071) for tok in (0, 1)]
    return edges + [
        (rng.getrandbits(64), rng.randrange(2**20), rng.randrange(2**18)) for _ in range(count)
    ]


def test_the_scalar_form_is_the_reference_bit_for_bit() -> None:
    triples = make_triples(2000)
    expected = uniforms(*(np.array(column, np.uint64) for column in zip(*triples, strict=True)))
    got = [uniform(noise_key(seed, pos), tok) for seed, pos, tok in triples]
    assert got == expected.tolist()


@pytest.mark.parametrize("size", [1, 7, 4096, 49152, 151936])
def test_the_vector_form_is_the_scalar_forms_high_bits(size: int) -> None:
    rng = random.Random(size)
    for seed in (*EDGE_SEEDS, rng.getrandbits(64)):
        position = rng.randrange(2**17)
        high = high_bits(noise_key(seed, position), token_codes(size, CPU))
        assert high.shape == (size,)
        assert high.min() >= 0
        expected = (uniforms(seed, position, range(size)) * 2.0**31).astype(np.int64)
        assert high.tolist() == expected.tolist()


def test_signed_integers_give_the_bits_that_unsigned_ones_give() -> None:
    """A GPU's form and the CPU's."""
    for seed in EDGE_SEEDS:
        key, codes = noise_key(seed, 77), token_codes(50257, CPU)
        assert torch.equal(noise._high_bits(key, codes), high_bits(key, codes))


def test_the_vector_form_does_not_depend_on_what_stands_beside_a_token() -> None:
    codes, key = token_codes(49152, CPU), noise_key(9, 4)
    ids = torch.tensor([49151, 3, 77, 3, 12345])
    assert high_bits(key, codes[ids]).tolist() == high_bits(key, codes)[ids].tolist()


def test_token_codes_are_never_written_to() -> None:
    before = token_codes(4096, CPU).clone()
    high_bits(noise_key(1, 2), token_codes(4096, CPU))
    assert torch.equal(token_codes(4096, CPU), before)
    assert before.unique().numel() == 4096


def test_a_uniform_is_an_odd_multiple_of_two_to_the_minus_53_inside_the_open_interval() -> None:
    v = uniforms(np.arange(200_000), 3, 5)
    scaled = v * 2.0**53
    assert np.all(scaled == np.floor(scaled))
    assert np.all(scaled % 2 == 1)
    assert 0 < v.min() < v.max() < 1


def test_gumbel_is_finite_at_both_ends() -> None:
    assert gumbel(2.0**-53) == pytest.approx(53 * math.log(2))
    assert gumbel(1 - 2.0**-53) == pytest.approx(-math.log(53 * math.log(2)))


def test_the_law_of_one_number_is_uniform_over_consecutive_seeds_to_the_tail() -> None:
    v = uniforms(np.arange(1_000_000, dtype=np.uint64), 17, 4242)
    assert stats.kstest(v, "uniform").pvalue > 1e-3
    for level in (1e-3, 1e-4, 1e-5):
        hits = int((v < level).sum())
        assert stats.binomtest(hits, len(v), level).pvalue > 1e-3
        assert stats.binomtest(int((v > 1 - level).sum()), len(v), level).pvalue > 1e-3


N = 1 << 18
NEIGHBOURS = {
    "seed": ((1, 0, 0),),
    "position": ((0, 1, 0),),
    "token": ((0, 0, 1), (0, 0, 2), (0, 0, 256), (0, 0, 65536)),
    "diagonal": ((1, 2**64 - 1, 0), (1, 0, 2**64 - 1), (0, 1, 2**64 - 1), (1, 1, 1)),
}


@pytest.mark.parametrize("walk", ["seed", "position", "token"])
@pytest.mark.parametrize("step", [s for steps in NEIGHBOURS.values() for s in steps])
def test_neighbours_are_independent(walk: str, step: tuple[int, int, int]) -> None:
    """Along consecutive seeds, positions or tokens, v and its neighbour's v: no correlation, no
    structure in a 16 x 16 table, none between their bits, none in the tail that decides races."""
    base = np.array([7_000_000, 1000, 70_000], np.uint64)
    axes = [np.full(N, b, np.uint64) for b in base]
    axes[["seed", "position", "token"].index(walk)] += np.arange(N, dtype=np.uint64)
    moved = [axis + np.uint64(by) for axis, by in zip(axes, step, strict=True)]
    v, w = uniforms(*axes), uniforms(*moved)
    assert abs(np.corrcoef(v, w)[0, 1]) < 5 / N**0.5
    assert abs(np.corrcoef(np.log(v), np.log(w))[0, 1]) < 5 / N**0.5
    table = np.bincount((v * 16).astype(int) * 16 + (w * 16).astype(int), minlength=256)
    assert stats.chisquare(table).pvalue > 1e-5
    flips = (v * 2.0**53).astype(np.uint64) ^ (w * 2.0**53).astype(np.uint64)
    for bit in range(1, 53):
        share = float(((flips >> np.uint64(bit)) & np.uint64(1)).mean())
        assert abs(share - 0.5) < 5 * 0.5 / N**0.5, bit
    both = int(((v < 0.01) & (w < 0.01)).sum())
    assert stats.binomtest(both, N, 1e-4).pvalue > 1e-5


def test_no_two_places_share_their_keys() -> None:
    """A sum of seed and position would give request 43 the noise of request 42, one step later."""
    for first in (0, 2**63, MAX_SEED - 199):
        keys = [noise_key(first + seed, position) for seed in range(200) for position in range(200)]
        assert len({key.low for key in keys}) == 40_000
        assert len({(key.offset, key.multiplier) for key in keys}) == 40_000


def test_mix64_is_a_bijection_with_full_avalanche() -> None:
    rng = random.Random(1)
    inputs = [rng.getrandbits(64) for _ in range(500)]
    assert len({mix64(x) for x in inputs}) == 500
    for bit in range(64):
        flips = sum((mix64(x) ^ mix64(x ^ (1 << bit))).bit_count() for x in inputs)
        assert abs(flips / (500 * 64) - 0.5) < 0.02


def test_choice_zero_keeps_the_seed_and_the_others_get_their_own() -> None:
    assert sub_seed(42, 0) == 42
    seeds = {sub_seed(seed, i) for seed in EDGE_SEEDS for i in range(128)}
    assert len(seeds) == len(EDGE_SEEDS) * 128
    assert all(0 <= seed <= MAX_SEED for seed in seeds)
