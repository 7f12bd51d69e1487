"""A draft model cut from its target: which layers it is made of, and the module that is trained.

Its first layers are the target's own up to the shallowest recorded hidden state. That state is what
they would put out, so they are neither computed nor trained, and the draft model's file need not
have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import CONFIG_MAPPING, AttentionInterface, AutoModelForCausalLM
from typing_extensions import override

from actors.drafters.checkpoints.files import open_checkpoint
from actors.drafters.external_cut import LAYERS
from actors.drafters.learned.target_parts import TargetParts
from actors.training.copying import best_layers
from actors.training.errors import TrainingError

ATTENTION = "pilotfish_packed"
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Whose layers are alike, and whose embedding goes into the first one as it is."""
COPYING = 2
"""Layers that copy, by default: with the one after the kept ones 21 MB of SmolLM2-135M in bf16."""


@dataclass(frozen=True, slots=True)
class Cut:
    """layers: of the target, ascending, that the draft model is made of. kept: so many of the
    first ones stay as they are."""

    layers: tuple[int, ...]
    kept: int


def default_cut(scores: list[float], taps: Sequence[int]) -> tuple[int, ...]:
    """Layers below the shallowest of the recorded `taps`, the one after them, and those that copy
    best. scores: of all layers (`actors.training.copying`)."""
    first = min(max(0, min(taps)), len(scores) - 1)
    return (*range(first + 1), *best_layers(scores, first + 1, COPYING))


def plan_cut(chosen: tuple[int, ...], depth: int, taps: Sequence[int]) -> Cut:
    """chosen: of the target's `depth` layers. Raises TrainingError."""
    outside = [i for i in chosen if not 0 <= i < depth]
    if outside:
        raise TrainingError(f"the target has layers 0 to {depth - 1}, none {outside[0]}", "cut")
    if list(chosen) != sorted(set(chosen)):
        raise TrainingError(f"layers are cut once each, in their order, not {chosen}", "cut")
    kept = [t for t in taps if 0 < t < len(chosen) and chosen[:t] == tuple(range(t))]
    return Cut(chosen, max(kept, default=0))


def cut_config(target: dict[str, Any], layers: Sequence[int]) -> dict[str, Any]:
    """config.json of a model of those layers. Raises TrainingError for a family whose layers are
    not known to be alike."""
    family = str(target.get("model_type"))
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise TrainingError(f"draft models are cut from {known}, not from {family}", "target")
    config = {**target, "num_hidden_layers": len(layers), "dtype": "bfloat16"}
    config.pop("_name_or_path", None)
    config.pop("torch_dtype", None)
    types = getattr(CONFIG_MAPPING[family].from_dict(dict(target)), "layer_types", None)
    if types:  # windows go with their layers
        config["layer_types"] = [types[i] for i in layers]
    return config


class _Kept(nn.Module):
    """Stands where a kept layer does: its input is what that put out already."""

    @override
    def forward(self, hidden: torch.Tensor, **keywords: Any) -> torch.Tensor:
        return hidden


@torch.no_grad()
def cut_module(parts: TargetParts, cut: Cut) -> Any:
    """transformers' model in fp32 with the layers of the target that are trained and its final
    norm, under the names that files have; without embedding and head. Raises TrainingError and
    DrafterLoadError."""
    config = cut_config(parts.config, cut.layers)
    small = config | {"vocab_size": 1, "tie_word_embeddings": False}
    small |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    model: Any = AutoModelForCausalLM.from_config(
        CONFIG_MAPPING[config["model_type"]].from_dict(small),
        dtype=torch.float32,
        attn_implementation=ATTENTION,
    ).eval()
    model.model.embed_tokens, model.lm_head = nn.Identity(), nn.Identity()
    for i in range(cut.kept):
        model.model.layers[i] = _Kept()
    source = open_checkpoint(parts.folder)
    for name, parameter in model.named_parameters():
        parameter.copy_(source.tensor(target_name(name, cut.layers)))
    return model


def target_name(name: str, layers: Sequence[int]) -> str:
    """What a tensor of the draft model is called in the target's files."""
    if not name.startswith(LAYERS):
        return name
    index, _, rest = name.removeprefix(LAYERS).partition(".")
    return f"{LAYERS}{layers[int(index)]}.{rest}"


def packed_attention(
    module: nn.Module,
    query: torch.Tensor,  # [1, heads, rows, head_dim]
    key: torch.Tensor,  # [1, kv_heads, rows, head_dim]
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **keywords: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each of the sequences that are packed one after another, of so many
    rows as `lengths` says; [1, rows, heads, head_dim]."""
    lengths: list[int] = keywords["lengths"]
    group = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(group, 1) for t in (key, value))
    parts = (torch.split(t, lengths, 2) for t in (query, key, value))
    out = [
        F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=_window(q, sliding_window),
            is_causal=_window(q, sliding_window) is None,
            scale=scaling,
        )
        for q, k, v in zip(*parts, strict=True)
    ]
    return torch.cat(out, 2).transpose(1, 2), None


def _window(rows: torch.Tensor, window: int | None) -> torch.Tensor | None:
    """Which rows each one sees, where it does not see all before it."""
    n = rows.shape[2]
    if not window or n <= window:
        return None
    seen = torch.ones(n, n, dtype=torch.bool, device=rows.device)
    return seen.tril().triu(1 - window)


AttentionInterface.register(ATTENTION, packed_attention)
