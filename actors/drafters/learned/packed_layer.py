"""Decoder layers as one call each of the compiled library, where nothing is trained.

A small layer is some sixty operations of torch, each of which costs more to call than to compute;
on a CPU they are most of a draft's time. The results are the modules' own but for rounding.
"""

from __future__ import annotations

import ctypes
import math

import torch
from torch import nn
from typing_extensions import override

from actors.drafters.external_kv import SessionKV
from actors.drafters.learned.attend import Block, Causal
from actors.drafters.learned.blocks import MLP, Attend, Attention, DecoderLayer, RMSNorm, Rope
from actors.drafters.learned.eagle_model import EagleLayer
from actors.drafters.learned.packed_norm import LANES, multiplier
from actors.engine.native import library
from actors.engine.native.crew import Crew
from actors.engine.native.pack import pack, pack_bias, pack_pairs

Table = tuple[torch.Tensor, torch.Tensor]


class PackedLayer(nn.Module):
    """Stands for a `DecoderLayer`: packed rows [rows, hidden], float32."""

    def __init__(self, layer: DecoderLayer, crew: Crew, dtype: torch.dtype) -> None:
        super().__init__()
        self._take(layer.self_attn, layer.mlp, crew, dtype, layer.index)
        self._describe(layer.post_attention_layernorm, layer.input_layernorm, None)
        # Keys and values of a context are made without the layer; nothing else of it is kept.
        self.self_attn = layer.self_attn
        del self.self_attn.q_proj, self.self_attn.o_proj

    @override
    def forward(self, x: torch.Tensor, rope: Rope, table: Table, attend: Attend) -> torch.Tensor:
        return self._run(x, None, table, attend)

    def _take(
        self, attention: Attention, mlp: MLP, crew: Crew, dtype: torch.dtype, index: int
    ) -> None:
        """Weights, in `dtype`, in the order in which they are read."""
        self._crew, self._dtype, self._index = crew, dtype, index
        self._spec = attention.spec
        maps = (attention.q_proj, attention.k_proj, attention.v_proj)
        gate, up, down, out = (
            m.weight.detach().to(dtype)
            for m in (mlp.gate_proj, mlp.up_proj, mlp.down_proj, attention.o_proj)
        )
        self._inter = int(gate.shape[0])
        self.qkv = nn.Buffer(pack(torch.cat([m.weight.detach().to(dtype) for m in maps])))
        self.out = nn.Buffer(pack(out))
        self.gate_up = nn.Buffer(pack_pairs(gate, up))
        self.down = nn.Buffer(pack(down))
        self._bias = pack_bias(*(None if m.bias is None else m.bias.detach() for m in maps))
        norms = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
        self._query_norm, self._key_norm = (n and multiplier(n) for n in norms)
        self._empty = torch.empty(self._spec.kv_heads, 0, self._spec.head_dim)

    def _describe(
        self, mlp: RMSNorm, own: RMSNorm, beside: RMSNorm | None, normed_residual: bool = False
    ) -> None:
        spec = self._spec
        self._mlp_norm, self._input_norm = multiplier(mlp), multiplier(own)
        self._beside_norm = None if beside is None else multiplier(beside)
        self.structure = library.DraftLayer(
            rounds=int(self._dtype is torch.bfloat16),
            hidden=spec.hidden,
            inter=self._inter,
            heads=spec.heads,
            kv_heads=spec.kv_heads,
            head_dim=spec.head_dim,
            interleaved=int(spec.interleaved),
            normed_residual=int(normed_residual),
            epsilon=spec.eps,
            scale=1.0 / math.sqrt(spec.head_dim),
            qkv=self.qkv.data_ptr(),
            qkv_bias=_address(self._bias),
            out=self.out.data_ptr(),
            gate_up=self.gate_up.data_ptr(),
            down=self.down.data_ptr(),
            beside_norm=_address(self._beside_norm),
            input_norm=self._input_norm.data_ptr(),
            mlp_norm=self._mlp_norm.data_ptr(),
            query_norm=_address(self._query_norm),
            key_norm=_address(self._key_norm),
        )

    def _run(
        self, x: torch.Tensor, beside: torch.Tensor | None, table: Table, attend: Attend
    ) -> torch.Tensor:
        """x, beside [rows, hidden]; table [rows, 1, turned / 2]."""
        assert isinstance(attend, Causal | Block)  # who else attends, trains
        x = x.contiguous()
        beside = None if beside is None else beside.contiguous()
        out = torch.empty_like(x)
        cosines, sines = (part.contiguous() for part in table)
        self.structure.turned = 2 * cosines.shape[-1]
        causal, window = attend.mask(self._index)
        spans = attend.spans
        held = [self.room(s.kv, s.offset + s.stop - s.start) for s in spans]
        starts = integers([span.start for span in spans])
        stops = integers([span.stop for span in spans])
        offsets = integers([span.offset for span in spans])
        capacities = integers([keys.shape[1] for keys, _ in held])
        keys = integers([keys.data_ptr() for keys, _ in held])
        values = integers([values.data_ptr() for _, values in held])
        step = library.DraftStep(
            rows=x.shape[0],
            x=x.data_ptr(),
            beside=_address(beside),
            cosines=cosines.data_ptr(),
            sines=sines.data_ptr(),
            causal=int(causal),
            window=window or 0,
            spans=len(spans),
            starts=ctypes.addressof(starts),
            stops=ctypes.addressof(stops),
            offsets=ctypes.addressof(offsets),
            capacities=ctypes.addressof(capacities),
            keys=ctypes.addressof(keys),
            values=ctypes.addressof(values),
            out=out.data_ptr(),
        )
        self._crew.layer(self.structure, step)
        return out

    def room(self, kv: SessionKV, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a session, with memory for so many rows."""
        return kv.room(self._index, rows, self._empty, self._empty)


class PackedEagleLayer(PackedLayer):
    """Stands for an `EagleLayer`."""

    def __init__(self, layer: EagleLayer, crew: Crew, dtype: torch.dtype) -> None:
        nn.Module.__init__(self)
        self._take(layer.self_attn, layer.mlp, crew, dtype, 0)
        self._describe(
            layer.post_attention_layernorm,
            layer.hidden_norm,
            layer.input_layernorm,
            layer.norm_before_residual,
        )

    @override
    def forward(  # type: ignore[override]
        self,
        embedded: torch.Tensor,
        hidden: torch.Tensor,
        rope: Rope,
        table: Table,
        attend: Attend,
    ) -> torch.Tensor:
        return self._run(hidden, embedded, table, attend)


def pack_layers(module: nn.Module, crew: Crew, dtype: torch.dtype) -> None:
    """Put packed layers in the place of those below `module` that the library knows: the others
    stay as they are. dtype: of weights, bfloat16 or float32."""
    for name, child in list(module.named_children()):
        if type(child) is DecoderLayer and _known(child.self_attn):
            setattr(module, name, PackedLayer(child, crew, dtype))
        elif type(child) is EagleLayer and _known(child.self_attn):
            setattr(module, name, PackedEagleLayer(child, crew, dtype))
        else:
            pack_layers(child, crew, dtype)


def _known(attention: Attention) -> bool:
    spec = attention.spec
    return spec.hidden % LANES == 0 and spec.head_dim % LANES == 0


def _address(tensor: torch.Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def integers(values: list[int]) -> ctypes.Array[ctypes.c_int64]:
    """As the library reads them: counts, offsets, addresses."""
    return (ctypes.c_int64 * len(values))(*values)
