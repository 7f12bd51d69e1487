"""Seconds of one forward from shape, device and rows: each part at the slower of reading and
computing. A first guess for planning and simulation; a server measures its own (policies.cost).

Not modelled: waves of a partly used grid, L2 hits of a second tile, overlap of communication,
routing that prefers some experts. Rows are padded to whole tiles where they compute.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from policies.codesign.shape import BYTES, Shape
from policies.codesign.tiles import attention_tiles
from policies.devices import Device, Reach


class UnsupportedError(ValueError):
    """A model that this device, or so many of them, cannot compute; the message says why."""


@dataclass(frozen=True, slots=True)
class Forward:
    """Seconds by part. weights: all matrix products; experts among them. attention: over the
    cache. links: all-reduces of tensor parallelism. fixed: launches and host."""

    weights: float
    attention: float
    links: float
    fixed: float

    @property
    def total(self) -> float:
        return self.weights + self.attention + self.links + self.fixed


@dataclass(frozen=True, slots=True)
class Machine:
    """`tp` like devices that share one model. Raises UnsupportedError where a size is wrong."""

    device: Device
    tp: int = 1
    reach: Reach = field(default_factory=Reach)

    def __post_init__(self) -> None:
        if self.tp < 1:
            raise UnsupportedError("tensor parallelism needs at least one device")

    def check(self, shape: Shape) -> None:
        """Raises UnsupportedError for a dtype without units, or heads that do not divide."""
        if shape.dtype not in self.device.flops:
            known = ", ".join(self.device.flops)
            raise UnsupportedError(f"{self.device.name} has no {shape.dtype} units; it has {known}")
        if shape.heads % self.tp:
            raise UnsupportedError(
                f"{shape.heads} query heads of {shape.name} do not divide by tp {self.tp}"
            )

    def peak(self, dtype: str) -> float:
        return self.device.flops[dtype] * self.reach.compute

    @property
    def bandwidth(self) -> float:
        return self.device.bandwidth * self.reach.bandwidth


def forward(
    shape: Shape, machine: Machine, sequences: int, depth: int, context: float, *, host: bool = True
) -> Forward:
    """A verification of `sequences` blocks of `depth` drafted tokens; depth 0 is standard decode.

    context: committed tokens of each sequence. host: with the host's part of a step.
    """
    rows = sequences * (1 + depth)
    attended = sequences * _attention_s(shape, machine, 1 + depth, context)
    return _forward(shape, machine, rows, attended, host)


def ragged(
    shape: Shape,
    machine: Machine,
    rows: int,
    sequences: int,
    context: float,
    *,
    host: bool = True,
) -> Forward:
    """A step of `rows` rows in all: those of each sequence are about rows/sequences."""
    each = -(-rows // max(sequences, 1))
    attended = sequences * _attention_s(shape, machine, each, context)
    return _forward(shape, machine, rows, attended, host)


def _forward(shape: Shape, machine: Machine, rows: int, attended_s: float, host: bool) -> Forward:
    machine.check(shape)
    reach = machine.reach
    fixed = shape.layers * reach.layer_s + (reach.host_s if host else 0.0)
    weights = _common_s(shape, machine, rows) + _experts_s(shape, machine, rows)
    return Forward(weights, attended_s, _links_s(shape, machine, rows), fixed)


def _padded(rows: float, tile: int) -> float:
    return -(-rows // tile) * tile


def _common_s(shape: Shape, machine: Machine, rows: int) -> float:
    each = shape.common_weights / machine.tp
    read = each * shape.weight_bytes / machine.bandwidth
    padded = _padded(rows, machine.device.gemm_tile)
    return max(read, 2.0 * padded * each / machine.peak(shape.dtype))


def _experts_s(shape: Shape, machine: Machine, rows: int) -> float:
    """Experts that some row has chosen are read whole: of E experts, E·(1 - (1 - k/E)^rows)."""
    if (moe := shape.experts) is None:
        return 0.0
    touched = touched_experts(moe.count, moe.chosen, rows)
    each = shape.expert_layers * shape.expert_weights / machine.tp
    read = touched * each * shape.weight_bytes / machine.bandwidth
    # A grouped product pads each expert's rows to a small tile of 16.
    padded = touched * _padded(rows * moe.chosen / touched, 16)
    return max(read, 2.0 * padded * each / machine.peak(shape.dtype))


def touched_experts(count: int, chosen: int, rows: int) -> float:
    """Expected experts of a layer that at least one of `rows` rows is routed to, all alike."""
    return count * (1.0 - (1.0 - chosen / count) ** rows)


def _attention_s(shape: Shape, machine: Machine, rows: int, context: float) -> float:
    """One sequence. Each tile of G·rows query rows reads the keys and values and pays for a whole
    tile: max of the two, times the tiles. Products are in bf16 whatever the weights are."""
    kv_heads = 1 if shape.latent else max(1, shape.kv_heads // machine.tp)
    group = max(1, shape.heads // machine.tp // kv_heads)
    tile = machine.device.tile
    if (mla := shape.latent) is not None:
        elements, products = mla.kv_rank + mla.rope, 2 * (2 * mla.kv_rank + mla.rope)
    else:
        elements, products = 2 * shape.head_dim, 4 * shape.head_dim
    read = elements * BYTES[shape.kv_dtype] / machine.bandwidth
    a_token = max(read, tile * products / machine.peak("bf16"))
    full = shape.layers - shape.windowed_layers
    tokens = full * context + shape.windowed_layers * min(context, shape.window)
    return kv_heads * tokens * attention_tiles(group, rows - 1, tile) * a_token


def _links_s(shape: Shape, machine: Machine, rows: int) -> float:
    """Two ring all-reduces a layer of [rows, hidden] in bf16."""
    if machine.tp == 1:
        return 0.0
    moved = 2.0 * (machine.tp - 1) / machine.tp * rows * shape.hidden * 2.0
    return 2 * shape.layers * (machine.reach.reduce_s + moved / machine.device.link)
