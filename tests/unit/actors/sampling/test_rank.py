"""One order everywhere: descending value, ties by ascending id (S21)."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.sampling.rank import first_max, largest, rank_of, top_any

torch.set_num_threads(1)
LENGTHS = [1, 5, 4096, 49152, 50257]


def make_row(length: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Few distinct values, so that ties are everywhere."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-40, 40, (length,), generator=generator).to(dtype)


def ordered(row: torch.Tensor) -> list[int]:
    values = row.tolist()
    return sorted(range(len(values)), key=lambda i: (-values[i], i))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("length", LENGTHS)
def test_the_first_of_equal_maxima_is_taken(length: int, dtype: torch.dtype) -> None:
    rows = torch.stack([make_row(length, seed, dtype) for seed in range(4)])
    values, ids = first_max(rows)
    assert ids == [ordered(row)[0] for row in rows]
    assert values == [float(row.max()) for row in rows]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_rows_maximum_shows_nan_and_infinity_wherever_they_stand(length: int, bad: float) -> None:
    for place in {0, length // 2, length - 1}:
        rows = torch.zeros(2, length)
        rows[1, place] = bad
        values, _ = first_max(rows)
        assert values[0] == 0.0
        assert not math.isfinite(values[1])


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("count", [1, 2, 50, 256, 5000, 60000])
def test_the_largest_are_the_full_sorts_first(length: int, count: int) -> None:
    row = make_row(length, 3)
    values, ids = largest(row, count)
    assert ids.tolist() == ordered(row)[:count]
    assert torch.equal(values, row[ids])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 600))
def test_the_largest_are_exact_with_few_ties_too(seed: int, count: int) -> None:
    """Among 8192 normal numbers in fp32 two are sometimes equal."""
    row = torch.randn(8192, generator=torch.Generator().manual_seed(seed))
    values, ids = row.sort(descending=True, stable=True)
    assert largest(row, count)[1].tolist() == ids[:count].tolist()
    assert top_any(row, count)[0].tolist() == values[:count].tolist()


def test_a_rank_counts_those_before_in_the_order() -> None:
    row = make_row(500, 1)
    assert [rank_of(row, token) for token in ordered(row)] == list(range(1, 501))
