"""transformers' recurrent layers over packed rows: its weights and projections, our state.

A mixer has three parts: `project` and `output` treat all rows alike, `compute` is what the rows of
one request do after its state. The module's own forward stays, for calls without a packed step.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from transformers.activations import ACT2FN
from typing_extensions import override

from actors.engine.hybrid.convolution import convolve
from actors.engine.hybrid.delta import Rows, delta_rule
from actors.engine.hybrid.memory import Tensors, exact_dtype


class Mixer(Protocol):
    """One kind of layer. `module`: transformers' own, whose weights are used."""

    def project(self, module: Any, hidden: torch.Tensor) -> tuple[dict[str, torch.Tensor], Any]:
        """Of hidden [rows, H]: tensors [rows, …] for `compute`, and what `output` needs."""

    def compute(
        self, module: Any, carried: Tensors, rows: Tensors
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Outputs [n, …] of n rows after the state `carried`, and what is noted of them."""

    def output(self, module: Any, mixed: torch.Tensor, gate: Any) -> torch.Tensor:
        """[rows, H] of the rows' outputs [rows, …]."""


class ShortConvolution:
    """LFM2's gated short convolution: out(C · conv(B · x))."""

    def project(self, module: Any, hidden: torch.Tensor) -> tuple[dict[str, torch.Tensor], Any]:
        before, after, x = module.in_proj(hidden).chunk(3, dim=-1)
        return {"inputs": before * x}, after

    def compute(
        self, module: Any, carried: Tensors, rows: Tensors
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        conv, inputs = module.conv, rows["inputs"]
        return convolve(inputs, carried["window"], conv.weight, conv.bias), {"inputs": inputs}

    def output(self, module: Any, mixed: torch.Tensor, gate: Any) -> torch.Tensor:
        out: torch.Tensor = module.out_proj(gate * mixed)
        return out


class GatedDeltaNet:
    """Qwen3.5's layer, which has a projection for each of its parts."""

    def project(self, module: Any, hidden: torch.Tensor) -> tuple[dict[str, torch.Tensor], Any]:
        inputs, z, b, a = self._parts(module, hidden)
        exact = exact_dtype(a.dtype)
        decay = -module.A_log.to(exact).exp() * F.softplus(a.to(exact) + module.dt_bias)
        return {"inputs": inputs, "decay": decay, "strength": b.sigmoid()}, z

    def compute(
        self, module: Any, carried: Tensors, rows: Tensors
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        conv, inputs = module.conv1d, rows["inputs"]
        mixed = convolve(inputs, carried["window"], conv.weight, conv.bias)
        mixed = ACT2FN[module.activation](mixed)
        width = module.key_dim
        q, k, v = mixed.split([width, width, module.value_dim], dim=-1)
        outputs, keys, writes, decay = delta_rule(
            Rows(
                q.unflatten(-1, (-1, module.head_k_dim)),
                k.unflatten(-1, (-1, module.head_k_dim)),
                v.unflatten(-1, (-1, module.head_v_dim)),
                rows["decay"],
                rows["strength"],
            ),
            carried["memory"],
        )
        noted = {"inputs": inputs, "keys": keys, "writes": writes, "decay": decay}
        return outputs.to(inputs.dtype), noted

    def output(self, module: Any, mixed: torch.Tensor, gate: Any) -> torch.Tensor:
        shape = (-1, module.head_v_dim)
        normed = gated_norm(module.norm, mixed.reshape(shape), gate.reshape(shape))
        out: torch.Tensor = module.out_proj(normed.reshape(mixed.shape[0], -1))
        return out

    def _parts(self, module: Any, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The convolution's inputs (queries, keys, values), the output gate, and what strength
        and decay are made of: [rows, …] each."""
        names = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
        return tuple(getattr(module, name)(hidden) for name in names)


class FusedGatedDeltaNet(GatedDeltaNet):
    """Qwen3-Next's layer: two projections, their columns in groups, one for each key head."""

    @override
    def _parts(self, module: Any, hidden: torch.Tensor) -> tuple[torch.Tensor, ...]:
        fused, scalars = module.in_proj_qkvz(hidden), module.in_proj_ba(hidden)
        q, k, v, z, b, a = module.fix_query_key_value_ordering(fused[None], scalars[None])
        inputs = torch.cat([part[0].flatten(1) for part in (q, k, v)], dim=-1)
        return inputs, z[0], b[0], a[0]


def gated_norm(norm: Any, rows: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """The layer's own; in fp64 its formula, because its own computes in fp32 whatever the dtype,
    where the last bits of an activation hang on how many rows there are."""
    if rows.dtype != torch.float64:
        normed: torch.Tensor = norm(rows, gate)
    else:
        scale = torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
        normed = norm.weight * (rows * scale) * F.silu(gate)
    return normed


MIXERS: dict[str, Mixer] = {
    "Lfm2ShortConv": ShortConvolution(),
    "Lfm2MoeShortConv": ShortConvolution(),
    "Lfm3ShortConv": ShortConvolution(),
    "Qwen3NextGatedDeltaNet": FusedGatedDeltaNet(),
    "Qwen3_5GatedDeltaNet": GatedDeltaNet(),
    "Qwen3_5MoeGatedDeltaNet": GatedDeltaNet(),
}
"""By the name of transformers' class."""
