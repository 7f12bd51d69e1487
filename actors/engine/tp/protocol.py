"""What rank 0 and the others say to each other.

    rank → 0   READY facts (JSON) once its shard is loaded     FAILED reason, and then it ends
    0 → rank   POOL sizes (JSON): serve from now on
               STEP, REFERENCE step: compute its part          STOP: end

Ranks answer nothing else: the collectives are the answer.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from actors.engine.errors import EngineError
from actors.engine.tp.rendezvous import LOOPBACK, Rendezvous

READY, FAILED = b"REDY", b"FAIL"
POOL, STEP, REFERENCE, STOP = b"POOL", b"STEP", b"REFR", b"STOP"


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What must agree between ranks (`shard`), and the memory each has left in bytes."""

    shard: str
    free_bytes: int

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> RankFacts:
        return cls(**json.loads(data))


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """The KV pool, the same on every rank but for whose heads it holds."""

    num_blocks: int
    block_size: int

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> PoolSizes:
        return cls(**json.loads(data))


def form_group(rendezvous: Rendezvous, rank: int, store: TCPStore, device: str) -> None:
    """Join the process group: nccl between GPUs, gloo between CPUs. Returns when all have.

    Raises EngineError.
    """
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    cuda = device.startswith("cuda")
    try:
        dist.init_process_group(
            "nccl" if cuda else "gloo",
            store=store,
            rank=rank,
            world_size=rendezvous.world,
            timeout=timedelta(seconds=rendezvous.patience.collective_s),
            device_id=torch.device("cuda", torch.cuda.current_device()) if cuda else None,
        )
    except (RuntimeError, ValueError) as error:
        raise EngineError(f"rank {rank} cannot join the process group: {error}") from error


def limit_collectives(rendezvous: Rendezvous, model: Any) -> None:
    """Give the model's own process group the same patience: where the mesh made a new one, that
    would wait for half an hour."""
    limit = timedelta(seconds=rendezvous.patience.collective_s)
    group = model._device_mesh["tp"].get_group()
    dist.distributed_c10d._set_pg_timeout(limit, group)


def open_store(rendezvous: Rendezvous, listening: int | None = None) -> TCPStore:
    """torch's key-value store, through which the process group forms. Rank 0 serves it on the
    descriptor `listening`, because torch's own choice would be every interface."""
    return TCPStore(
        LOOPBACK,
        rendezvous.store_port,
        rendezvous.world,
        is_master=listening is not None,
        timeout=timedelta(seconds=rendezvous.patience.join_s),
        wait_for_workers=False,
        master_listen_fd=listening,
    )
