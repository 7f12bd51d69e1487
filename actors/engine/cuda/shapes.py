"""Which shapes have a graph: few, so that each is met often and their memory stays small."""

from __future__ import annotations

from typing import NamedTuple

ROWS = (1, 2, 4, 8, 16, 32, 64)
"""Of a step without long prompts. More rows are computed eagerly: they cost more than launches."""
CONTEXTS = (1024, 4096, 16384)
"""Tokens a row may see; the last rung is the longest context there is."""


class Shape(NamedTuple):
    """rows of a forward, and the blocks of KV that each of them looks at."""

    rows: int
    blocks: int


def shape_of(rows: int, tokens: int, max_model_len: int, block_size: int) -> Shape | None:
    """The least shape that holds so many rows, none of which sees more than `tokens`; None for
    more rows than any shape has."""
    bucket = next((r for r in ROWS if rows <= r), None)
    if bucket is None:
        return None
    context = next((c for c in CONTEXTS if tokens <= c), max_model_len)
    return Shape(bucket, -(-min(context, max_model_len) // block_size))
