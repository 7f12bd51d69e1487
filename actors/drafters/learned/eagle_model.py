"""EAGLE-3 (arXiv 2503.01840) with the norms of 3.1 and P-EAGLE's parallel slots (2602.01469).

Entry j pairs the target's features of row j with the embedding of token j + 1, at position j, and
predicts token j + 2. Only true features go through `fuse`; past them the model's own state takes
their place.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from typing_extensions import override

from actors.drafters.learned.blocks import MLP, Attend, Attention, DecoderLayer, RMSNorm, Rope
from actors.drafters.learned.spec import LayerSpec


@dataclass(frozen=True, slots=True)
class EagleSpec:
    """taps: indices into transformers' hidden_states, pre-norm. draft_vocab: rows of the head.

    norm_before_fc: one norm over all taps together; fc_norm: one for each (3.1); never both.
    norm_before_residual: the first layer's residual is the normed feature. norm_output: what goes
    on to the next step is normed (3.1). slots: drafts of one forward with P-EAGLE's mask, whose
    embedding is that of mask_token; 0 is a chain of forwards.
    """

    layer: LayerSpec
    layers: int
    taps: tuple[int, ...]
    target_hidden: int
    draft_vocab: int
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_before_residual: bool = False
    norm_output: bool = False
    slots: int = 0
    mask_token: int = 0

    @property
    def feature_dim(self) -> int:
        return len(self.taps) * self.target_hidden


class EagleLayer(nn.Module):
    """The first layer: attention over [embedding, feature], residual stream from the feature."""

    def __init__(self, spec: LayerSpec, norm_before_residual: bool) -> None:
        super().__init__()
        self.norm_before_residual = norm_before_residual
        self.input_layernorm = RMSNorm(spec.hidden, spec.eps, spec.norm_offset)
        self.hidden_norm = RMSNorm(spec.hidden, spec.eps, spec.norm_offset)
        self.self_attn = Attention(spec, 2 * spec.hidden)
        self.post_attention_layernorm = RMSNorm(spec.hidden, spec.eps, spec.norm_offset)
        self.mlp = MLP(spec.hidden, spec.intermediate)

    @override
    def forward(
        self,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        rope: Rope,
        table: tuple[torch.Tensor, torch.Tensor],
        attend: Attend,
    ) -> torch.Tensor:
        normed = self.hidden_norm(hidden)
        x = torch.cat((self.input_layernorm(embedded), normed), -1)
        y = normed if self.norm_before_residual else hidden
        y = y + self.self_attn(x, rope, table, lambda q, k, v: attend(0, q, k, v))
        out: torch.Tensor = y + self.mlp(self.post_attention_layernorm(y))
        return out


class EagleModel(nn.Module):
    """Tensor names as in speculators' checkpoints: `layers.0` is the two-wide layer.

    Embedding and head stay outside (`Ends`): the target's, or the drafter's own.
    """

    def __init__(self, spec: EagleSpec) -> None:
        super().__init__()
        self.spec = spec
        layer, wide = spec.layer, spec.feature_dim
        self.fc = nn.Linear(wide, layer.hidden, bias=False)
        if spec.norm_before_fc:
            self.input_norm = RMSNorm(wide, layer.eps, layer.norm_offset)
        if spec.fc_norm:
            self.fc_norm = nn.ModuleList(
                RMSNorm(spec.target_hidden, layer.eps, layer.norm_offset) for _ in spec.taps
            )
        if spec.slots:
            self.mask_hidden = nn.Parameter(torch.zeros(1, 1, wide))
        self.layers = nn.ModuleList(
            DecoderLayer(layer, i) if i else EagleLayer(layer, spec.norm_before_residual)
            for i in range(spec.layers)
        )
        self.norm = RMSNorm(layer.hidden, layer.eps, layer.norm_offset)
        self.rope = Rope(layer)

    def fuse(self, features: torch.Tensor) -> torch.Tensor:
        """The target's features [..., taps · target hidden] -> [..., hidden]."""
        if self.spec.norm_before_fc:
            features = self.input_norm(features)
        elif self.spec.fc_norm:
            parts = features.chunk(len(self.spec.taps), -1)
            normed = [norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)]
            features = torch.cat(normed, -1)
        out: torch.Tensor = self.fc(features)
        return out

    def masked(self) -> torch.Tensor:
        """What stands for the feature of a slot after the first, [hidden] (P-EAGLE)."""
        return self.fuse(self.mask_hidden.view(-1))

    @override
    def forward(
        self,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        attend: Attend,
    ) -> torch.Tensor:
        """Embeddings of tokens j + 1 and features or states of rows j, both [..., hidden], at
        positions j [...] -> states z [..., hidden], pre-norm."""
        table = self.rope(positions)
        first, *rest = self.layers
        x: torch.Tensor = first(embedded, hidden, self.rope, table, attend)
        for layer in rest:
            x = layer(x, self.rope, table, attend)
        return x

    def recycled(self, z: torch.Tensor) -> torch.Tensor:
        """What the next entry gets in place of a feature."""
        out: torch.Tensor = self.norm(z) if self.spec.norm_output else z
        return out

    def output(self, z: torch.Tensor) -> torch.Tensor:
        """What the head reads, [..., hidden], of states z."""
        out: torch.Tensor = self.norm(z)
        return out
