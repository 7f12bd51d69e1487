"""Linear maps of small models on the executor's multiplication: bf16 or fp32 weights read once,
fp32 activations. A row's result does not depend on the rows beside it."""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import override

from actors.engine.native import library
from actors.engine.native.crew import Crew
from actors.engine.native.pack import pack, pack_bias, padded


class PackedLinear(nn.Module):
    """Stands for an `nn.Linear` when nothing is trained: x [..., in] -> float32 [..., out]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, crew: Crew) -> None:
        super().__init__()
        self.crew = crew
        self.out_features, self.in_features = weight.shape
        self.packed = nn.Buffer(pack(weight.detach()), persistent=False)
        row = pack_bias(None if bias is None else bias.detach())
        self._bias = row
        self.structure = library.Linear(
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
            self.crew.linear(self.structure, rows, out)
        return out[:, : self.out_features].reshape(*x.shape[:-1], self.out_features)


def pack_linears(module: nn.Module, crew: Crew, dtype: torch.dtype) -> None:
    """Put `PackedLinear`s in the place of all linears below `module`, weights in `dtype`
    (bfloat16 or float32). Activations are float32 from then on."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, PackedLinear(child.weight.to(dtype), child.bias, crew))
        else:
            pack_linears(child, crew, dtype)
