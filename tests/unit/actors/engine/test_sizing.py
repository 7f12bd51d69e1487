"""The KV pool holds one context at least and never more than every sequence could use."""

from __future__ import annotations

import pytest
import torch

from actors.engine.errors import ModelLoadError
from actors.engine.sizing import free_memory, pool_blocks, row_bytes
from actors.engine.state import PagedKV

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


def test_free_memory_is_read_from_the_machine() -> None:
    assert free_memory("cpu") > 2**20
