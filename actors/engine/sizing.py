"""How many KV blocks fit: from a wish in bytes, or from the memory that is really there."""

from __future__ import annotations

import torch

from actors.engine.errors import ModelLoadError
from actors.engine.state import PagedKV

_SHARE = 0.25  # of the free memory, when nothing was asked for


def free_memory(device: str) -> int:
    """Bytes that could still be allocated on the device."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    with open("/proc/meminfo") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    raise ModelLoadError("cannot read the free memory", param="kv_cache_memory_bytes")


def row_bytes(spec: tuple[PagedKV, ...], dtype: torch.dtype, feature_dim: int) -> int:
    """Bytes kept for one token: keys and values of all layers, and its features in bf16."""
    return sum(layer.row_elements for layer in spec) * dtype.itemsize + 2 * feature_dim


def pool_blocks(
    bytes_a_row: int,
    block_size: int,
    max_model_len: int,
    max_num_seqs: int,
    wanted_bytes: int | None,
    available_bytes: int,
) -> int:
    """Blocks of the pool: at least one whole context, at most max_num_seqs of them.

    Raises ModelLoadError naming the least size when `wanted_bytes` cannot hold one context.
    """
    least = -(-max_model_len // block_size)
    budget = wanted_bytes if wanted_bytes is not None else int(available_bytes * _SHARE)
    blocks = budget // (bytes_a_row * block_size)
    if blocks < least:
        if wanted_bytes is None and least * block_size * bytes_a_row < available_bytes:
            return least
        raise ModelLoadError(
            f"one request of max_model_len {max_model_len} needs "
            f"{least * block_size * bytes_a_row} bytes of KV cache, and {budget} are given; lower "
            "max_model_len or raise kv_cache_memory_bytes",
            param="kv_cache_memory_bytes",
        )
    return min(blocks, least * max_num_seqs)
