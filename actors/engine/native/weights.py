"""A transformers model's weights, packed, and the descriptors that point at them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from actors.engine.native import library
from actors.engine.native.arena import Arena
from actors.engine.native.family import rotary_tables
from actors.engine.native.pack import pack, pack_bias, pack_pairs
from actors.engine.state import PagedKV


@dataclass(slots=True)
class PackedModel:
    """`model` and `layers` hold addresses of tensors in `kept`."""

    model: library.Model
    layers: Any  # ctypes array of library.Layer
    kept: list[torch.Tensor] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.kept)


@torch.inference_mode()
def pack_model(hf: Any, spec: tuple[PagedKV, ...], max_model_len: int) -> PackedModel:
    """hf: a model that `family.obstacle` has nothing against. Takes as much memory again as the
    model's weights; the model itself is not needed afterwards."""
    arena = Arena()
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor | None) -> int | None:
        if tensor is None:
            return None
        kept.append(arena.keep(tensor))
        return kept[-1].data_ptr()

    text, first = hf.config, hf.model.layers[0]
    cosines, sines = rotary_tables(hf, max_model_len)
    model = library.Model(
        rounds=int(hf.dtype is torch.bfloat16),
        hidden=text.hidden_size,
        inter=text.intermediate_size,
        heads=text.num_attention_heads,
        kv_heads=spec[0].kv_heads,
        head_dim=spec[0].head_dim,
        vocab=hf.get_output_embeddings().weight.shape[0],
        tokens=hf.get_input_embeddings().weight.shape[0],
        layers=len(spec),
        max_positions=max_model_len,
        epsilon=text.rms_norm_eps,
        scale=first.self_attn.scaling,
        cosines=keep(cosines),
        sines=keep(sines),
        embedding=keep(hf.get_input_embeddings().weight.detach()),
        norm=keep(hf.model.norm.weight.float()),
        head=keep(pack(hf.get_output_embeddings().weight)),
    )
    layers = (library.Layer * len(spec))()
    for target, layer, state in zip(layers, hf.model.layers, spec, strict=True):
        attention, mlp = layer.self_attn, layer.mlp
        maps = (attention.q_proj, attention.k_proj, attention.v_proj)
        target.qkv = keep(pack(torch.cat([m.weight for m in maps])))
        target.qkv_bias = keep(pack_bias(*(m.bias for m in maps)))
        target.out = keep(pack(attention.o_proj.weight))
        target.out_bias = keep(pack_bias(attention.o_proj.bias))
        target.gate_up = keep(pack_pairs(mlp.gate_proj.weight, mlp.up_proj.weight))
        target.down = keep(pack(mlp.down_proj.weight))
        target.attention_norm = keep(layer.input_layernorm.weight.float())
        target.mlp_norm = keep(layer.post_attention_layernorm.weight.float())
        for name in ("q_norm", "k_norm"):
            norm = getattr(attention, name, None)
            address = keep(None if norm is None else norm.weight.float())
            setattr(target, "query_norm" if name == "q_norm" else "key_norm", address)
        target.window = state.window or 0
    return PackedModel(model, layers, kept)
