"""The KV pool holds one context at least and never more than every sequence could use."""

from __future__ import annotations

import pytest
import torch

from actors.engine.errors import ModelLoadError
from actors.engine.kv import KVPool
from actors.engine.sizing import memory_share, place_bytes, pool_blocks, row_bytes
from actors.engine.state import Convolution, GatedDelta, Layer, PagedKV

SPEC = (PagedKV(3, 64),) * 30


def test_a_token_of_smollm2_takes_23040_bytes_in_bf16() -> None:
    assert row_bytes(SPEC, torch.bfloat16, 0) == 30 * 2 * 3 * 64 * 2
    assert row_bytes(SPEC, torch.bfloat16, 100) == 30 * 2 * 3 * 64 * 2 + 200


@pytest.mark.parametrize(
    ("wanted", "available", "expected"),
    [
        (None, 16_000, 40),  # a quarter: 4000 bytes = 40 blocks of 10 rows of 10 bytes
        (8_000, 1, 80),
        (None, 10**9, 160),  # never more than max_num_seqs contexts
        (None, 2_500, 20),  # a quarter is too little, one whole context still fits
    ],
)
def test_blocks_follow_the_wish_or_a_quarter_of_what_is_free(wanted, available, expected) -> None:
    assert pool_blocks(10, 10, 200, 8, wanted, available) == expected


@pytest.mark.parametrize(("wanted", "available"), [(1_999, 10**9), (None, 1_000)])
def test_a_pool_smaller_than_one_context_is_refused_by_name(wanted, available: int) -> None:
    with pytest.raises(ModelLoadError, match="2000 bytes") as refusal:
        pool_blocks(10, 10, 200, 8, wanted, available)
    assert refusal.value.param == "kv_cache_memory_bytes"


def test_a_co_located_drafter_is_left_room_for_every_token_of_the_pool() -> None:
    sized = [
        pool_blocks(10, 10, 200, 80, None, 400_000, drafter_bytes_a_row=beside)
        for beside in (0, 10, 30)
    ]
    assert sized == [1000, 500, 250]
    for blocks, beside in zip(sized, (0, 10, 30), strict=True):
        assert blocks * 10 * (10 + beside) <= 400_000 * memory_share("cpu")
    assert pool_blocks(10, 10, 200, 80, 5_000, 1, drafter_bytes_a_row=30) == 50
    with pytest.raises(ModelLoadError, match="and 30 a token beside it"):
        pool_blocks(10, 10, 200, 80, None, 7_000, drafter_bytes_a_row=30)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_states_of_all_places_take_what_was_counted(dtype: torch.dtype) -> None:
    spec: tuple[Layer, ...] = (Convolution(8, 3), PagedKV(1, 4), GatedDelta(1, 2, 4, 6, 4))
    pool = KVPool(spec, 1, 1, dtype, "cpu", places=5)
    tensors = [
        tensor
        for states in pool.states.values()
        for tensor in (*states._carried.values(), *states._noted.values())
    ]
    assert sum(tensor.nbytes for tensor in tensors) == 5 * place_bytes(spec, dtype)
    assert row_bytes(spec, dtype, 0) == 2 * 4 * dtype.itemsize
    assert place_bytes(SPEC, dtype) == 0


def test_recurrent_states_come_out_of_the_same_memory() -> None:
    sized = [
        pool_blocks(10, 10, 200, 8, wanted, 16_000, bytes_a_place=place)
        for wanted, place in ((8_000, 0), (8_000, 100), (None, 0), (None, 100))
    ]
    assert sized == [80, 72, 40, 32]
    with pytest.raises(ModelLoadError, match="state of max_num_seqs 8 takes 7200"):
        pool_blocks(10, 10, 200, 8, 8_000, 16_000, bytes_a_place=900)


def test_a_gpu_is_the_pools_alone_and_a_cpu_is_not() -> None:
    assert memory_share("cpu") < 0.5 < memory_share("cuda:1") < 1
