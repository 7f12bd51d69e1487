"""Every step that may have a graph has exactly one, the least that holds it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.engine.cuda.shapes import CONTEXTS, ROWS, Shape, shape_of


@given(st.integers(1, 64), st.integers(1, 40_000), st.integers(1, 40_000), st.integers(1, 64))
def test_the_least_shape_that_holds_a_step_is_its(
    rows: int, tokens: int, longest: int, block_size: int
) -> None:
    tokens = min(tokens, longest)
    shape = shape_of(rows, tokens, longest, block_size)
    assert shape is not None
    assert shape.rows == min(r for r in ROWS if r >= rows)
    assert shape.blocks * block_size >= tokens
    fitting = [c for c in (*CONTEXTS, longest) if c >= tokens]
    assert shape.blocks == -(-min(*fitting, longest) // block_size)


def test_more_rows_than_any_shape_has_are_nobodys() -> None:
    assert shape_of(ROWS[-1], 10, 100, 16) == Shape(64, 7)
    assert shape_of(ROWS[-1] + 1, 10, 100, 16) is None


def test_there_are_few_shapes() -> None:
    assert len(ROWS) <= 7
    shapes = {shape_of(r, t, 32_768, 16) for r in range(1, 65) for t in range(1, 32_769, 97)}
    assert len(shapes) == len(ROWS) * (len(CONTEXTS) + 1)
