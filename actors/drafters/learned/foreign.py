"""Decoder layers that are transformers' own, for bodies that `blocks` does not have: experts,
latent attention, gated attention. Their attention is told by `Attend` how rows attend, like ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM
from typing_extensions import override

from actors.drafters.errors import DrafterLoadError, refusal
from actors.drafters.learned.blocks import Attend

ATTENTION = "pilotfish_attend"
_UNSUPPORTED = ("sliding_window", "softcap", "s_aux", "position_bias")

Table = tuple[torch.Tensor, torch.Tensor]


class ForeignLayer(nn.Module):
    """One layer of a model of transformers, attending as `index` of its drafter. Tensor names are
    the layer's own."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    @override
    def forward(self, x: torch.Tensor, rope: Any, table: Table, attend: Attend) -> torch.Tensor:
        """Packed rows [rows, hidden] or [batch, rows, hidden]."""
        flat = x.dim() == 2
        cos, sin = (part.to(x.dtype) for part in table)
        out: torch.Tensor = self.layer(
            x[None] if flat else x,
            attention_mask=None,
            position_embeddings=(cos, sin),
            pilotfish_attend=attend,
            pilotfish_flat=flat,
        )
        return out[0] if flat else out


class ForeignRope(nn.Module):
    """The model's own rotary tables, fp32 whatever the drafter is cast to."""

    def __init__(self, rotary: nn.Module) -> None:
        super().__init__()
        self._rotary = [rotary]  # no submodule: nothing may cast its frequencies

    @override
    def forward(self, positions: torch.Tensor) -> Table:
        """cos, sin: [batch or 1, rows, rotated dims]."""
        (rotary,) = self._rotary
        ids = positions if positions.dim() == 2 else positions[None]
        like = torch.empty(0, device=positions.device)
        cos, sin = rotary.to(positions.device)(like, position_ids=ids)
        return cos, sin


def foreign_layers(config: Mapping[str, Any], count: int) -> tuple[list[ForeignLayer], ForeignRope]:
    """`count` full-attention layers of the causal LM that `config` (a text model's config.json)
    describes, on the meta device, and its rotary tables. Raises DrafterLoadError."""
    text = _config(config, count)
    try:
        model_class = AutoModelForCausalLM._model_mapping[type(text)]
        with torch.device("meta"):
            decoder = model_class(text).get_decoder()
        rotary = type(decoder.rotary_emb)(text)
    except (KeyError, AttributeError, ValueError, TypeError) as error:
        raise refusal(f"{text.model_type}: no layers of it can be made: {error}") from error
    return [ForeignLayer(layer) for layer in decoder.layers], ForeignRope(rotary)


def _config(config: Mapping[str, Any], count: int) -> Any:
    """The model's config, with `count` layers that are all like the ones a head has."""
    values = {k: v for k, v in config.items() if k not in ("model_type", "per_layer_config")}
    try:
        text = AutoConfig.for_model(str(config.get("model_type")), **values).get_text_config()
    except (ValueError, KeyError, TypeError) as error:
        raise refusal(
            f"{config.get('model_type')!r} is no model of transformers: {error}"
        ) from error
    text.num_hidden_layers = count
    for name, value in (
        ("layer_types", ["full_attention"] * count),
        ("mlp_layer_types", ["sparse"] * count),
        ("mlp_only_layers", []),
        ("first_k_dense_replace", 0),
    ):
        if getattr(text, name, None) is not None:
            setattr(text, name, value)
    text._attn_implementation = ATTENTION
    text._experts_implementation = "eager"  # any dtype, and a row knows nothing of the others
    return text


def _attention(
    module: nn.Module,
    query: torch.Tensor,  # [batch, heads, rows, head_dim]
    key: torch.Tensor,  # [batch, kv_heads, rows, head_dim]
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Returns [batch, rows, heads, value dim]."""
    for name in _UNSUPPORTED:
        if kwargs.get(name) is not None:
            raise DrafterLoadError(f"attention with {name} is not supported", "model")
    attend: Attend = kwargs["pilotfish_attend"]
    if scaling is not None:  # `Attend` scales by the root of the head's size
        query = query * (scaling * math.sqrt(query.shape[-1]))
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    layer = int(module.layer_idx)  # type: ignore[arg-type]
    if kwargs["pilotfish_flat"]:
        return attend(layer, q[0], k[0], v[0])[None], None
    return attend(layer, q, k, v), None


AttentionInterface.register(ATTENTION, _attention)
