"""DFlash 2's convolutions over a block: each row takes a little of the rows before it, by kernels
that it chooses itself, before and after attention and MLP. Nothing crosses a block's start."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from typing_extensions import override

from actors.drafters.learned.blocks import Attend, DecoderLayer, Rope
from actors.drafters.learned.spec import LayerSpec


@dataclass(frozen=True, slots=True)
class ConvSpec:
    """taps: rows that a row sees, itself included. group: channels that share a kernel."""

    taps: int
    group: int


class LocalConv(nn.Module):
    """y_i = Σ_t (base_t + δ_i,t) ⊙ x_i-t, with δ a linear map of the sublayer's normed input, one
    value for each group of channels; side 0 is for the sublayer's input, side 1 its output."""

    def __init__(self, hidden: int, spec: ConvSpec) -> None:
        super().__init__()
        self.spec = spec
        self.base_kernel = nn.Parameter(torch.zeros(2, spec.taps, hidden))
        groups = hidden // spec.group
        self.kernel_projection = nn.Linear(hidden, 2 * spec.taps * groups, bias=False)

    @override
    def forward(self, u: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """u [rows, hidden], places [rows] of each in its block -> the sublayer's input, and the
        kernels [rows, taps, groups] for its output."""
        sides = self.kernel_projection(u).view(u.shape[0], 2, self.spec.taps, -1)
        return self.convolve(u, sides[:, 0], 0, places), sides[:, 1]

    def convolve(
        self, x: torch.Tensor, kernels: torch.Tensor, side: int, places: torch.Tensor
    ) -> torch.Tensor:
        grouped = x.view(x.shape[0], -1, self.spec.group)
        out = torch.zeros_like(grouped)
        for tap in range(self.spec.taps):
            base = self.base_kernel[side, tap].view(-1, self.spec.group)
            # Filled, not multiplied: another session's NaN must stay its own.
            before = grouped.roll(tap, 0).masked_fill((places < tap)[:, None, None], 0.0)
            out = out + (base + kernels[:, tap, :, None]) * before
        return out.flatten(-2)


class ConvDecoderLayer(DecoderLayer):
    def __init__(self, spec: LayerSpec, index: int, conv: ConvSpec) -> None:
        super().__init__(spec, index)
        self.attention_conv = LocalConv(spec.hidden, conv)
        self.mlp_conv = LocalConv(spec.hidden, conv)

    @override
    def forward(
        self,
        x: torch.Tensor,
        rope: Rope,
        table: tuple[torch.Tensor, torch.Tensor],
        attend: Attend,
        places: torch.Tensor | None = None,
    ) -> torch.Tensor:
        assert places is not None  # packed rows of blocks
        index = self.index
        u, kernels = self.attention_conv(self.input_layernorm(x), places)
        y = self.self_attn(u, rope, table, lambda q, k, v: attend(index, q, k, v))
        x = x + self.attention_conv.convolve(y, kernels, 1, places)
        u, kernels = self.mlp_conv(self.post_attention_layernorm(x), places)
        return x + self.mlp_conv.convolve(self.mlp(u), kernels, 1, places)
