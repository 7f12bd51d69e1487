"""What fits: weights, KV, sequences at a context; and how many verifiers a drafter carries."""

from __future__ import annotations

from dataclasses import dataclass

from policies.codesign.roofline import Machine, UnsupportedError
from policies.codesign.shape import Shape

USABLE = 0.9
"""Of a device's memory; the rest is for activations and the allocator's fragments."""


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes on all devices together. kv: left for the cache, after the weights."""

    weights: float
    kv: float

    def sequences(self, shape: Shape, context: int, tp: int = 1) -> int:
        """So many of `context` tokens fit. Where there are fewer KV heads than ranks (latent
        attention has one for all) ranks keep copies."""
        copies = max(1.0, tp / (1 if shape.latent else shape.kv_heads))
        return int(self.kv / (copies * shape.kv_bytes(context)))


def room(shape: Shape, machine: Machine, usable: float = USABLE) -> Room:
    """Raises UnsupportedError, naming the devices it takes, when the weights alone do not fit."""
    weights = shape.weights * shape.weight_bytes
    have = machine.tp * machine.device.memory * usable
    if weights >= have:
        least = int(weights / (machine.device.memory * usable)) + 1
        raise UnsupportedError(
            f"{shape.name} in {shape.dtype} has {weights / 1e9:.0f} GB of weights, "
            f"{machine.tp} x {machine.device.name} {have / 1e9:.0f} GB; it takes {least} or more"
        )
    return Room(weights, have - weights)


def verifiers_per_drafter(round_s: float, draft_s: float) -> float:
    """How many verifiers keep one drafter busy: each asks it once a round for draft_s. Under 1 it
    takes 1/that drafters a verifier."""
    return round_s / draft_s if draft_s > 0.0 else float("inf")
