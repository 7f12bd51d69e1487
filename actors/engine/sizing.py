"""How many KV blocks fit: from a wish in bytes, or from the memory that is really there."""

from __future__ import annotations

import torch

from actors.engine.errors import ModelLoadError
from actors.engine.hybrid.memory import BANKS, NOTED_ROWS, exact_dtype
from actors.engine.state import Kept, Layer, PagedKV

_CPU_SHARE = 0.25  # of the free memory, when nothing was asked for: others live here too
_GPU_SHARE = 0.85  # the rest is for activations and the allocator's fragments


def row_bytes(spec: tuple[Layer, ...], dtype: torch.dtype, feature_dim: int) -> int:
    """Bytes kept for one token: keys and values of all layers, and its features in bf16."""
    return sum(layer.row_elements for layer in spec) * dtype.itemsize + 2 * feature_dim


def place_bytes(spec: tuple[Layer, ...], dtype: torch.dtype) -> int:
    """Bytes of one running request's recurrent state, however long it is; 0 without such layers."""

    def size(kept: Kept) -> int:
        return kept.elements * (exact_dtype(dtype) if kept.exact else dtype).itemsize

    return sum(
        BANKS * sum(map(size, layer.carried.values()))
        + NOTED_ROWS * sum(map(size, layer.noted.values()))
        for layer in spec
        if not isinstance(layer, PagedKV)
    )


def memory_share(device: str) -> float:
    """The part of a device's free memory that the pool may take unasked."""
    return _GPU_SHARE if device.startswith("cuda") else _CPU_SHARE


def pool_blocks(
    bytes_a_row: int,
    block_size: int,
    max_model_len: int,
    max_num_seqs: int,
    wanted_bytes: int | None,
    available_bytes: int,
    *,
    share: float = _CPU_SHARE,
    drafter_bytes_a_row: int = 0,
    bytes_a_place: int = 0,
) -> int:
    """Blocks of the pool: at least one whole context, at most max_num_seqs of them.

    available_bytes: free on the device, the weights already loaded, a co-located drafter's too.
    drafter_bytes_a_row: what that drafter keeps beside the pool for each token of a request, so
    that both fit when the pool is full. A wish in bytes is for the pool alone.
    bytes_a_place: recurrent state of one running request, which comes out of the same memory.
    Raises ModelLoadError naming the least size when the memory cannot hold one context.
    """
    least = -(-max_model_len // block_size)
    whole_row = bytes_a_row + drafter_bytes_a_row
    states = bytes_a_place * max_num_seqs
    if wanted_bytes is not None:
        budget, blocks = wanted_bytes, (wanted_bytes - states) // (bytes_a_row * block_size)
    else:
        budget = int(available_bytes * share)
        blocks = (budget - states) // (whole_row * block_size)
    if blocks < least:
        if wanted_bytes is None and least * block_size * whole_row + states < available_bytes:
            return least
        beside = f" and {drafter_bytes_a_row} a token beside it" if drafter_bytes_a_row else ""
        if states:
            beside += f", the recurrent state of max_num_seqs {max_num_seqs} takes {states}"
        raise ModelLoadError(
            f"one request of max_model_len {max_model_len} needs "
            f"{least * block_size * bytes_a_row} bytes of KV cache{beside}, and {budget} are "
            "given; lower max_model_len or raise kv_cache_memory_bytes",
            param="kv_cache_memory_bytes",
        )
    return min(blocks, least * max_num_seqs)
