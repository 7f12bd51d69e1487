"""Multi-token prediction heads: DeepSeek-V3's (arXiv 2412.19437, §2.2), Qwen3-Next's, MiMo's.

A stage joins the embedding of token j + 1 with the target's normed last state of row j and runs
one decoder layer; what comes out, normed, goes through the target's head and on to the next
stage. Row 0 is like any other (vLLM zeroes its embedding; transformers and SGLang do not).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from typing_extensions import override

from actors.drafters.learned.blocks import Attend, DecoderLayer, RMSNorm, Rope
from actors.drafters.learned.spec import LayerSpec


@dataclass(frozen=True, slots=True)
class MtpSpec:
    """stages: trained depths; deeper drafts use them in turn. tap: the target's last layer, as an
    index into hidden_states, pre-norm. hidden_first: [hidden, embedding] (MiMo), else
    [embedding, hidden]. target_eps, target_offset: of the target's final norm. body: where the
    decoder layers are transformers' own, the config.json of the model they are from; then `layer`
    says no more than widths and norms."""

    layer: LayerSpec
    stages: int
    tap: int
    hidden_first: bool = False
    target_eps: float = 1e-6
    target_offset: float = 0.0
    body: Mapping[str, Any] | None = None


class MtpStage(nn.Module):
    """DeepSeek's names, with `block` for the decoder layer and `norm` for what follows it."""

    def __init__(self, spec: MtpSpec, block: nn.Module) -> None:
        super().__init__()
        layer = spec.layer
        self.hidden_first = spec.hidden_first
        self.enorm = RMSNorm(layer.hidden, layer.eps, layer.norm_offset)
        self.hnorm = RMSNorm(layer.hidden, layer.eps, layer.norm_offset)
        self.eh_proj = nn.Linear(2 * layer.hidden, layer.hidden, bias=False)
        self.block = block
        self.norm = RMSNorm(layer.hidden, layer.eps, layer.norm_offset)

    @override
    def forward(
        self,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        rope: nn.Module,
        table: tuple[torch.Tensor, torch.Tensor],
        attend: Attend,
    ) -> torch.Tensor:
        parts = (self.enorm(embedded), self.hnorm(hidden))
        x = self.eh_proj(torch.cat(parts[::-1] if self.hidden_first else parts, -1))
        out: torch.Tensor = self.norm(self.block(x, rope, table, attend))
        return out


class MtpModel(nn.Module):
    """`final_norm` is the target's: set from its weights, and no part of a checkpoint. Embedding
    and head are the target's too and stay outside."""

    def __init__(self, spec: MtpSpec) -> None:
        super().__init__()
        self.spec = spec
        self.final_norm = RMSNorm(spec.layer.hidden, spec.target_eps, spec.target_offset)
        blocks, self.rope = _body(spec)
        self.stages = nn.ModuleList(MtpStage(spec, block) for block in blocks)

    def feature(self, tapped: torch.Tensor) -> torch.Tensor:
        """The target's last pre-norm states -> what its head reads; both [..., hidden]."""
        out: torch.Tensor = self.final_norm(tapped)
        return out

    @override
    def forward(
        self,
        stage: int,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        attend: Attend,
    ) -> torch.Tensor:
        """One stage: embeddings of tokens i + 1, and the states (a feature, or what the stage
        before made of it) that they follow, both [..., hidden], at positions i [...] -> states
        [..., hidden], to go through the target's head and to the next stage."""
        table = self.rope(positions)
        out: torch.Tensor = self.stages[stage](embedded, hidden, self.rope, table, attend)
        return out


def _body(spec: MtpSpec) -> tuple[Sequence[nn.Module], nn.Module]:
    """A decoder layer for each stage, and what turns positions into their tables."""
    if spec.body is None:
        return [DecoderLayer(spec.layer, i) for i in range(spec.stages)], Rope(spec.layer)
    from actors.drafters.learned.foreign import foreign_layers

    return foreign_layers(spec.body, spec.stages)
