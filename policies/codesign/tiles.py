"""The guide's rules of the hardware as arithmetic: tiles, matrix rows, intensity, ridge.

D drafted tokens make 1 + D rows of a request in one forward: GEMM rows grow from M to M·(1 + D),
attention rows of a KV head from G to G·(1 + D), and the KV cache does not grow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def gemm_rows(sequences: int, depth: int) -> int:
    """M·(1 + D)."""
    return sequences * (1 + depth)


def attention_tiles(group: int, depth: int, tile: int = 128) -> int:
    """Tiles that G·(1 + D) rows take; a part-used tile costs a whole one."""
    return -(-group * (1 + depth) // tile)


def first_guess(group: int, tile: int = 128) -> int:
    """The largest D whose rows fill no more than one tile, tile/G - 1; 0 where one row is more."""
    return max(0, tile // group - 1)


def candidates(group: int, tile: int = 128, most: int = 64) -> tuple[int, ...]:
    """0, and every D up to `most` that fills its last tile: floor(k·tile/G) - 1."""
    edges = {k * tile // group - 1 for k in range(1, 2 + most * group // tile)}
    return tuple(sorted({0} | {d for d in edges if 0 < d <= most}))


def gemm_intensity(rows: int, n: int, k: int, weight_bytes: float = 2.0) -> float:
    """Operations per byte of a product [rows, k] x [k, n]; activations in bf16."""
    moved = weight_bytes * n * k + 2.0 * rows * (n + k)
    return 2.0 * rows * n * k / moved


def ridge(flops: float, bandwidth: float) -> float:
    """Operations per byte from which on a device computes longer than it reads."""
    return flops / bandwidth


def compute_bound_rows(n: int, k: int, ridge: float, weight_bytes: float = 2.0) -> float:
    """Rows from which a product with an [n, k] matrix is compute-bound; infinite where its own
    activations keep it memory-bound. Verification reaches it with 1/(1 + D) of the sequences."""
    spare = 2.0 * n * k - 2.0 * ridge * (n + k)
    return ridge * weight_bytes * n * k / spare if spare > 0.0 else math.inf


def attention_intensity(group: int, depth: int, element_bytes: float = 2.0) -> float:
    """Operations per byte of cached keys and values: 2·G·(1 + D) per element, the guide's 2G at
    D = 0 and one byte."""
    return 2.0 * group * (1 + depth) / element_bytes


def stairs(values: Sequence[float]) -> tuple[int, ...]:
    """The indices whose value is above that of the one before: where a staircase rises."""
    return tuple(i for i in range(1, len(values)) if values[i] > values[i - 1])
