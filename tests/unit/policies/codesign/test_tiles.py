"""The guide's statements about the hardware, as exact arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.codesign.roofline import Machine, forward
from policies.codesign.shape import Shape
from policies.codesign.tiles import (
    attention_intensity,
    attention_tiles,
    candidates,
    compute_bound_rows,
    first_guess,
    gemm_intensity,
    gemm_rows,
    ridge,
    stairs,
)
from policies.devices import DEVICES, Reach, device

groups = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 12, 16, 32, 64, 128])


@pytest.mark.parametrize(
    ("group", "depth"), [(8, 15), (32, 3), (16, 7), (4, 31), (128, 0), (3, 41)]
)
def test_the_first_guess_fills_one_tile(group: int, depth: int) -> None:
    assert first_guess(group) == depth


@pytest.mark.parametrize("name", ["H100", "A100", "B200"])
def test_at_seven_drafted_tokens_an_eighth_of_the_batch_is_compute_bound(name: str) -> None:
    """The guide's example: an expert's product with N = K = 6144."""
    there = ridge(device(name).flops["bf16"], device(name).bandwidth)
    rows = compute_bound_rows(6144, 6144, there)
    standard, drafting = rows / (1 + 0), rows / (1 + 7)
    assert drafting == standard / 8
    # and it is the point at which the product's own intensity is the ridge
    assert gemm_intensity(math.ceil(rows), 6144, 6144) >= there
    assert gemm_intensity(math.floor(rows), 6144, 6144) < there


def test_a_product_whose_activations_outweigh_it_is_never_compute_bound() -> None:
    assert compute_bound_rows(64, 64, 300.0) == math.inf


@given(groups, st.integers(0, 64))
def test_attention_does_two_g_operations_on_each_element_of_the_cache(g: int, d: int) -> None:
    assert attention_intensity(g, 0, element_bytes=1.0) == 2 * g
    assert attention_intensity(g, d) == (1 + d) * attention_intensity(g, 0)


@given(groups)
def test_the_next_token_after_a_candidate_opens_a_new_tile(group: int) -> None:
    for depth in candidates(group):
        if depth:
            assert attention_tiles(group, depth + 1) > attention_tiles(group, depth)


@given(groups, st.integers(1, 64))
def test_every_edge_of_a_tile_is_a_candidate(group: int, most: int) -> None:
    edges = [
        d for d in range(1, most + 1) if attention_tiles(group, d + 1) > attention_tiles(group, d)
    ]
    assert set(candidates(group, most=most)) == {0, *edges}


@given(st.integers(1, 512), st.integers(0, 64))
def test_drafted_tokens_multiply_the_rows_of_products(sequences: int, depth: int) -> None:
    assert gemm_rows(sequences, depth) == sequences * (1 + depth)


def test_past_a_tiles_edge_a_part_used_tile_costs_a_whole_one() -> None:
    """One sequence of a long context: attention is most of the step, and rises at the edges only,
    by as much as a whole tile costs."""
    shape = Shape("G = 8", 1024, 1, 64, 8, 128, 1024, 1024)
    machine = Machine(DEVICES["H100"], reach=Reach(layer_s=0.0, host_s=0.0))
    seconds = [forward(shape, machine, 1, d, 200_000).attention for d in range(50)]
    assert stairs(seconds) == (16, 32, 48)
    assert seconds[16] == pytest.approx(2 * seconds[15], rel=1e-12)
    assert seconds[32] == pytest.approx(3 * seconds[0], rel=1e-12)
