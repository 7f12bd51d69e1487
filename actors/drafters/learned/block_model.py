"""The backbone of DFlash and all its descendants (arXiv 2602.06036).

Features of committed rows become one context row each, whose keys and values every layer makes
with its own projections; a block [anchor, mask × (n-1)] sees all of the context before the anchor
and all of itself, in one forward.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from typing_extensions import override

from actors.drafters.learned.blocks import Attend, DecoderLayer, RMSNorm, Rope
from actors.drafters.learned.local_conv import ConvDecoderLayer, ConvSpec
from actors.drafters.learned.spec import LayerSpec


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """taps: indices into transformers' hidden_states, pre-norm. block: slots of one forward, the
    anchor's included. next_token: slot k predicts the token after its own position (DSpark), so
    a block gives `block` drafts; else its own (DFlash) and `block` - 1. causal: a slot sees the
    slots up to itself (JetSpec). per_layer: (causal, window) of each layer, where they differ.
    conv: convolutions over the block (DFlash 2)."""

    layer: LayerSpec
    layers: int
    taps: tuple[int, ...]
    target_hidden: int
    block: int
    mask_token: int
    next_token: bool
    causal: bool = False
    per_layer: tuple[tuple[bool, int | None], ...] = ()
    conv: ConvSpec | None = None

    @property
    def masks(self) -> tuple[tuple[bool, int | None], ...]:
        """(causal, window): one for each layer, or one for all."""
        return self.per_layer or ((self.causal, self.layer.window),)

    @property
    def drafts(self) -> int:
        return self.block if self.next_token else self.block - 1


class BlockModel(nn.Module):
    """Tensor names as z-lab's and DeepSpec's checkpoints have them."""

    def __init__(self, spec: BlockSpec) -> None:
        super().__init__()
        self.spec = spec
        layer = spec.layer
        self.fc = nn.Linear(len(spec.taps) * spec.target_hidden, layer.hidden, bias=False)
        self.hidden_norm = RMSNorm(layer.hidden, layer.eps, layer.norm_offset)
        conv = spec.conv
        self.layers = nn.ModuleList(
            DecoderLayer(layer, i) if conv is None else ConvDecoderLayer(layer, i, conv)
            for i in range(spec.layers)
        )
        self.norm = RMSNorm(layer.hidden, layer.eps, layer.norm_offset)
        self.rope = Rope(layer)

    def context(self, features: torch.Tensor) -> torch.Tensor:
        """[..., taps · target hidden] -> [..., hidden]; the same for all layers."""
        out: torch.Tensor = self.hidden_norm(self.fc(features))
        return out

    def context_kv(
        self, context: torch.Tensor, positions: torch.Tensor
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each layer the keys and values [..., kv_heads, head_dim] of context rows. Context
        is not normed by the layers and never attends."""
        table = self.rope(positions)
        return [
            layer.self_attn.key_value(context, self.rope, table)  # type: ignore[operator, union-attr]
            for layer in self.layers
        ]

    @override
    def forward(
        self,
        embedded: torch.Tensor,
        positions: torch.Tensor,
        attend: Attend,
        places: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Blocks' embeddings [..., hidden] at positions [...] -> normed hidden states. `attend`
        puts the context's keys before the block's own. places: of rows in their blocks, [rows];
        convolutions need them."""
        table, x = self.rope(positions), embedded
        for layer in self.layers:
            if self.spec.conv is None:
                x = layer(x, self.rope, table, attend)
            else:
                x = layer(x, self.rope, table, attend, places)
        out: torch.Tensor = self.norm(x)
        return out
