"""Drafter layers that begin as layers of the target, cut to shape: a run of minutes has no time to
learn attention from noise.

Norms that stand before a projection are folded into it, so that layers which read one shared,
normed context can each have been another layer of the target.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import nn

from actors.drafters.learned.block_model import BlockModel
from actors.drafters.learned.blocks import MLP, Attention, DecoderLayer, RMSNorm
from actors.drafters.learned.eagle_model import EagleLayer, EagleModel
from actors.drafters.learned.mtp_model import MtpStage
from actors.training.errors import TrainingError

PREFIX = "model.layers."


class TargetLayers:
    """A target's layers by name, from one safetensors file."""

    def __init__(self, folder: str | Path) -> None:
        path = Path(folder) / "model.safetensors"
        if not path.exists():
            raise TrainingError(f"a warm start needs {path}", "target")
        opened: Any = safe_open(path, framework="pt")
        self._file = opened
        self._names = set(opened.keys())

    def tensor(self, layer: int, name: str) -> torch.Tensor:
        """fp32."""
        full = f"{PREFIX}{layer}.{name}.weight"
        if full not in self._names:
            raise TrainingError(f"a warm start needs the target's {full}", "target")
        found: torch.Tensor = self._file.get_tensor(full)
        return found.float()


@torch.no_grad()
def warm_block(
    model: BlockModel,
    layers: TargetLayers,
    sources: tuple[int, ...],
    tap: int,
    scale: torch.Tensor,
) -> None:
    """Drafter layer i begins as the target's sources[i]; the context begins as tap number `tap`
    of the features, what those layers' attention has read in the target."""
    _pass_through(model.fc.weight, tap, scale)
    for module, source in zip(model.layers, sources, strict=True):
        assert isinstance(module, DecoderLayer)
        attention = module.self_attn
        for name in ("q_proj", "k_proj", "v_proj"):
            getattr(attention, name).weight.copy_(_folded(layers, source, name))
        attention.o_proj.weight.copy_(layers.tensor(source, "self_attn.o_proj"))
        scale_query_key(attention)
        warm_mlp(module.mlp, layers, source)


@torch.no_grad()
def warm_eagle(
    model: EagleModel, layers: TargetLayers, source: int, tap: int, scale: torch.Tensor
) -> None:
    """The hidden half of the two-wide layer begins as the target's layer, the half that reads the
    token as nearly nothing; features begin as tap number `tap`."""
    hidden = model.spec.layer.hidden
    _pass_through(model.fc.weight, tap, scale)
    layer = model.layers[0]
    assert isinstance(layer, EagleLayer)
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = getattr(layer.self_attn, name).weight
        weight[:, :hidden].normal_(0.0, 0.02)
        weight[:, hidden:].copy_(_folded(layers, source, name))
    layer.self_attn.o_proj.weight.copy_(layers.tensor(source, "self_attn.o_proj"))
    scale_query_key(layer.self_attn)
    warm_mlp(layer.mlp, layers, source)


@torch.no_grad()
def warm_mtp(stage: MtpStage, layers: TargetLayers, source: int) -> None:
    """The block begins as the target's layer; what it reads, as the state alone."""
    block = stage.block
    assert isinstance(block, DecoderLayer)
    hidden = block.self_attn.spec.hidden
    own, other = slice(hidden, None), slice(0, hidden)
    if stage.hidden_first:
        own, other = other, own
    stage.eh_proj.weight[:, other].normal_(0.0, 0.02)
    stage.eh_proj.weight[:, own].copy_(torch.eye(hidden))
    for name in ("q_proj", "k_proj", "v_proj"):
        getattr(block.self_attn, name).weight.copy_(_folded(layers, source, name))
    block.self_attn.o_proj.weight.copy_(layers.tensor(source, "self_attn.o_proj"))
    scale_query_key(block.self_attn)
    warm_mlp(block.mlp, layers, source)


def _folded(layers: TargetLayers, source: int, name: str) -> torch.Tensor:
    """A projection with the norm before it."""
    norm = layers.tensor(source, "input_layernorm")
    return layers.tensor(source, f"self_attn.{name}") * norm


def _pass_through(weight: torch.Tensor, tap: int, scale: torch.Tensor) -> None:
    """fc: one tap as it is but for its size, which becomes one, and a little of the others.
    scale: what the features are divided by."""
    hidden = weight.shape[0]
    weight.normal_(0.0, 0.1 * weight.shape[1] ** -0.5)
    own = scale[tap * hidden : (tap + 1) * hidden]
    weight[:, tap * hidden : (tap + 1) * hidden] += torch.diag(own / own.pow(2).mean().sqrt())


@torch.no_grad()
def warm_mlp(mlp: MLP, layers: TargetLayers, source: int) -> None:
    """The neurons that weigh most of the target's layer, its norm folded in."""
    norm = layers.tensor(source, "post_attention_layernorm")
    gate = layers.tensor(source, "mlp.gate_proj") * norm
    up = layers.tensor(source, "mlp.up_proj") * norm
    down = layers.tensor(source, "mlp.down_proj")
    size = mlp.gate_proj.weight.shape[0]
    worth = gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)
    kept = worth.topk(min(size, worth.shape[0])).indices.sort().values
    n = kept.shape[0]
    for linear, source_rows in ((mlp.gate_proj, gate[kept]), (mlp.up_proj, up[kept])):
        linear.weight[:n].copy_(source_rows)
    mlp.down_proj.weight[:, :n].copy_(down[:, kept])


@torch.no_grad()
def scale_query_key(attention: Attention) -> None:
    """Norms on queries and keys that the target has not: their weights begin as the size that
    its projections give a normed input on average."""
    if not attention.spec.qk_norm:
        return
    for norm, linear in (
        (attention.q_norm, attention.q_proj),
        (attention.k_norm, attention.k_proj),
    ):
        # Of an input with independent entries of size 1 a row gives its own norm.
        rows = linear.weight.norm(dim=1).view(-1, attention.spec.head_dim)
        norm.weight.copy_(rows.pow(2).mean(0).sqrt())


@torch.no_grad()
def warm_embedding(table: nn.Embedding, embedding: torch.Tensor) -> None:
    """A token's few numbers begin as the principal components of the target's embedding, so that
    tokens the answers never showed are near those they are like."""
    rank = table.weight.shape[1]
    centred = embedding.float() - embedding.float().mean(0)
    _, vectors = torch.linalg.eigh(centred.T @ centred)
    projected = centred @ vectors[:, -rank:]
    table.weight.copy_(projected / projected.std().clamp(min=1e-6))


START = 0.25
"""Of the target's final norm: states that know nothing yet had better say little."""


@torch.no_grad()
def start_norm(norm: RMSNorm, final: torch.Tensor) -> None:
    """The norm before the head, from the target's final one [hidden]."""
    norm.weight.copy_(START * final)


@torch.no_grad()
def quiet(module: nn.Module) -> None:
    """Attention and MLP add nothing at first, so that what enters a layer leaves it."""
    for part in module.modules():
        if isinstance(part, Attention):
            part.o_proj.weight.zero_()
        elif isinstance(part, MLP):
            part.down_proj.weight.zero_()
