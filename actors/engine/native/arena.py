"""Memory for weights: in large pages where the system has them, for it is read from end to end at
every step, and half a million small pages cost a tenth of that time."""

from __future__ import annotations

import mmap

import torch

CHUNK = 64 * 2**20
PAGE = 2 * 2**20
LINE = 64
"""Bytes that a tensor's start is a multiple of."""


class Arena:
    """Tensors side by side in a few large mappings, alive as long as any of them."""

    def __init__(self) -> None:
        self._free = torch.empty(0, dtype=torch.uint8)

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of the tensor in the arena."""
        source = tensor.contiguous()
        size = source.numel() * source.element_size()
        if self._free.numel() < size:
            self._free = _mapping(max(size, CHUNK))
        place = self._free[:size].view(source.dtype).view(source.shape)
        place.copy_(source)
        self._free = self._free[-(-size // LINE) * LINE :]
        return place


def _mapping(size: int) -> torch.Tensor:
    """Zeroed bytes from a large page's start on."""
    memory = mmap.mmap(-1, size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    start = -whole.data_ptr() % PAGE
    return whole[start : start + size]
