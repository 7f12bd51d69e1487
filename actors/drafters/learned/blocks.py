"""What all learned drafters are built of. One definition serves drafting and training: a layer
projects, and is told how its rows attend, so it does not know where keys live.

Tensors are [..., hidden]: flat packed rows when drafting, [batch, rows] when training.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from typing_extensions import override

from actors.drafters.learned.spec import LayerSpec

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(layer, q [..., heads, dim], k [..., kv_heads, dim], v) -> [..., heads, dim], scaled inside."""


class RMSNorm(nn.Module):
    """x / rms(x) · (weight + offset), computed in fp32 or above (arXiv 1910.07467)."""

    def __init__(self, size: int, eps: float, offset: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), 1.0 - offset))
        self.eps = eps
        self.offset = offset

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float() if x.dtype.itemsize < 4 else x
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        if self.offset:  # Gemma multiplies before it rounds
            return (wide * (self.weight.to(wide.dtype) + self.offset)).to(x.dtype)
        return self.weight * wide.to(x.dtype)


class Rope(nn.Module):
    """Rotary positions (arXiv 2104.09864). The tables stay fp32 whatever the model is cast to:
    rounded frequencies lose acceptance as the position grows."""

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__()
        frequencies, self._scale = _frequencies(spec)
        self._frequencies = frequencies  # no buffer: nothing may cast it
        self._interleaved = spec.interleaved

    @override
    def forward(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos, sin: fp32 [..., 1, head_dim / 2] for integer positions [...]."""
        if self._frequencies.device != positions.device:
            self._frequencies = self._frequencies.to(positions.device)
        angles = positions[..., None].float() * self._frequencies
        return (angles.cos() * self._scale)[..., None, :], (angles.sin() * self._scale)[
            ..., None, :
        ]

    def turn(self, x: torch.Tensor, table: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """x [..., heads, dim] at the table's positions; a table for fewer dims leaves the rest."""
        cos, sin = table
        wide = x.float() if x.dtype.itemsize < 4 else x
        size = 2 * cos.shape[-1]
        turned, rest = wide[..., :size], wide[..., size:]
        if self._interleaved:
            a, b = turned[..., 0::2], turned[..., 1::2]
            turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        else:
            a, b = turned.chunk(2, -1)
            turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
        return torch.cat((turned, rest), -1).to(x.dtype) if rest.shape[-1] else turned.to(x.dtype)


class Attention(nn.Module):
    """Grouped-query projections; `in_features` may be wider than the hidden size (EAGLE-3)."""

    def __init__(self, spec: LayerSpec, in_features: int = 0) -> None:
        super().__init__()
        self.spec = spec
        wide, bias = in_features or spec.hidden, spec.attention_bias
        self.q_proj = nn.Linear(wide, spec.heads * spec.head_dim, bias=bias)
        self.k_proj = nn.Linear(wide, spec.kv_heads * spec.head_dim, bias=bias)
        self.v_proj = nn.Linear(wide, spec.kv_heads * spec.head_dim, bias=bias)
        self.o_proj = nn.Linear(spec.heads * spec.head_dim, spec.hidden, bias=False)
        if spec.qk_norm:
            self.q_norm = RMSNorm(spec.head_dim, spec.eps, spec.norm_offset)
            self.k_norm = RMSNorm(spec.head_dim, spec.eps, spec.norm_offset)

    def query(
        self, x: torch.Tensor, rope: Rope, table: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """[..., heads, head_dim]"""
        q = self.q_proj(x).unflatten(-1, (self.spec.heads, self.spec.head_dim))
        return rope.turn(self.q_norm(q) if self.spec.qk_norm else q, table)

    def key_value(
        self, x: torch.Tensor, rope: Rope, table: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Each [..., kv_heads, head_dim]."""
        shape = (self.spec.kv_heads, self.spec.head_dim)
        k = self.k_proj(x).unflatten(-1, shape)
        v = self.v_proj(x).unflatten(-1, shape)
        return rope.turn(self.k_norm(k) if self.spec.qk_norm else k, table), v

    @override
    def forward(
        self,
        x: torch.Tensor,
        rope: Rope,
        table: tuple[torch.Tensor, torch.Tensor],
        attend: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        q = self.query(x, rope, table)
        k, v = self.key_value(x, rope, table)
        out: torch.Tensor = self.o_proj(attend(q, k, v).flatten(-2))
        return out


class MLP(nn.Module):
    """SwiGLU (arXiv 2002.05202)."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class DecoderLayer(nn.Module):
    """Pre-norm attention and MLP, tensor names as in Llama and Qwen3."""

    def __init__(self, spec: LayerSpec, index: int) -> None:
        super().__init__()
        self.index = index
        self.input_layernorm = RMSNorm(spec.hidden, spec.eps, spec.norm_offset)
        self.self_attn = Attention(spec)
        self.post_attention_layernorm = RMSNorm(spec.hidden, spec.eps, spec.norm_offset)
        self.mlp = MLP(spec.hidden, spec.intermediate)

    @override
    def forward(
        self,
        x: torch.Tensor,
        rope: Rope,
        table: tuple[torch.Tensor, torch.Tensor],
        attend: Attend,
    ) -> torch.Tensor:
        index = self.index
        x = x + self.self_attn(
            self.input_layernorm(x), rope, table, lambda q, k, v: attend(index, q, k, v)
        )
        out: torch.Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


def _frequencies(spec: LayerSpec) -> tuple[torch.Tensor, float]:
    """fp32 [rotated dims / 2], and the factor of cos and sin; transformers' own rules, so that
    every `rope_type` means what it means in the target."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = LlamaConfig(
        hidden_size=spec.heads * spec.head_dim,
        num_attention_heads=spec.heads,
        head_dim=spec.head_dim,
        max_position_embeddings=spec.max_context or 4096,
        rope_parameters=dict(spec.rope),
    )
    made = LlamaRotaryEmbedding(config)
    frequencies: torch.Tensor = made.inv_freq
    share = float(spec.rope.get("partial_rotary_factor", 1.0))
    if share < 1.0 and spec.rope.get("rope_type", "default") == "default":
        size = int(spec.head_dim * share)
        base = float(spec.rope["rope_theta"])
        frequencies = 1.0 / base ** (torch.arange(0, size, 2, dtype=torch.float) / size)
    return frequencies.float(), float(made.attention_scaling)
