"""Weights in the order in which the executor reads them (src/gemm.h)."""

from __future__ import annotations

import torch
import torch.nn.functional as F

PANEL = 16


def padded(n: int) -> int:
    """n rounded up to whole panels."""
    return -(-n // PANEL) * PANEL


def pack(weight: torch.Tensor) -> torch.Tensor:
    """A linear's weight [out, in] as panels [ceil(out / 16), in, 16].

    In bf16 columns j and j + 8 of a panel lie in one 32-bit word, j in the lower half: widening
    them to float32 is then one shift and one mask.
    """
    out, inner = weight.shape
    weight = F.pad(weight, (0, 0, 0, padded(out) - out))
    panels = weight.view(-1, PANEL, inner).transpose(1, 2)
    if weight.dtype is torch.bfloat16:
        panels = panels.reshape(-1, inner, 2, PANEL // 2).transpose(2, 3)
    return panels.reshape(-1, inner, PANEL).contiguous()


def pack_pairs(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Two weights of one shape as panels of the first and the second by turns."""
    return torch.stack((pack(gate), pack(up)), dim=1).flatten(0, 1).contiguous()


def pack_bias(*biases: torch.Tensor | None) -> torch.Tensor | None:
    """Biases side by side, float32, padded to whole panels; None when there is none."""
    present = [bias for bias in biases if bias is not None]
    if not present:
        return None
    row = torch.cat(present).float()
    return F.pad(row, (0, padded(row.numel()) - row.numel())).contiguous()
