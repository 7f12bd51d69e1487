"""How the ranks of one target find each other; plain values that cross process borders."""

from __future__ import annotations

from dataclasses import dataclass, field

LOOPBACK = "127.0.0.1"
"""All ranks of a target share a node: tensor parallelism wants the links inside one."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds until somebody is given up.

    lost_after_s: without a heartbeat; an ended process is noticed at once. collective_s: of one
    collective, in which a rank that lives but does not come leaves the others. join_s: until all
    ranks have connected. load_s: until all have loaded their shards.
    """

    beat_every_s: float = 0.5
    lost_after_s: float = 10.0
    collective_s: float = 30.0
    join_s: float = 120.0
    load_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Made by rank 0. store_port: of torch's key-value store. control_port, key: of the control
    channel. world: ranks in all."""

    world: int
    store_port: int
    control_port: int
    key: bytes = field(repr=False)
    patience: Patience = Patience()
