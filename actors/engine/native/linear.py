"""Linear maps of small models on the executor's multiplication: bf16 or fp32 weights read once,
fp32 activations. A row's result does not depend on the rows beside it."""

from __future__ import annotations

import weakref

import torch
from torch import nn
from typing_extensions import override

from actors.engine.native import library
from actors.engine.native.library import Library
from actors.engine.native.pack import pack, pack_bias, padded


class Multiplier:
    """Threads that linear maps share. threads: those that compute, the caller included."""

    def __init__(self, compiled: Library, threads: int = 1) -> None:
        self._library = compiled
        self._handle = compiled.multiplier(threads)
        self._close = weakref.finalize(self, compiled.end_multiplier, self._handle)
        self._close.atexit = False  # the process's end frees it all

    def run(self, linear: library.Linear, x: torch.Tensor, out: torch.Tensor) -> None:
        """x [rows, inner] and out [rows, outer padded], float32, contiguous."""
        self._library.linear(
            self._handle, linear, x.shape[0], x.data_ptr(), x.shape[1], out.data_ptr()
        )


class PackedLinear(nn.Module):
    """Stands for an `nn.Linear` when nothing is trained: x [..., in] -> float32 [..., out]."""

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, multiplier: Multiplier
    ) -> None:
        super().__init__()
        self._multiplier = multiplier
        self.out_features, self.in_features = weight.shape
        self.packed = nn.Buffer(pack(weight.detach()), persistent=False)
        row = pack_bias(None if bias is None else bias.detach())
        self._bias = row
        self._linear = library.Linear(
            int(weight.dtype is torch.bfloat16),
            self.in_features,
            self.out_features,
            self.packed.data_ptr(),
            None if row is None else row.data_ptr(),
        )

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.in_features).float().contiguous()
        out = torch.empty(rows.shape[0], padded(self.out_features), dtype=torch.float32)
        if rows.shape[0]:
            self._multiplier.run(self._linear, rows, out)
        return out[:, : self.out_features].reshape(*x.shape[:-1], self.out_features)


def pack_linears(module: nn.Module, multiplier: Multiplier, dtype: torch.dtype) -> None:
    """Put `PackedLinear`s in the place of all linears below `module`, weights in `dtype`
    (bfloat16 or float32). Activations are float32 from then on."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, PackedLinear(child.weight.to(dtype), child.bias, multiplier))
        else:
            pack_linears(child, multiplier, dtype)
