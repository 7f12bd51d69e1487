"""Tensor-parallel groups for tests: rank 0 is the test itself, the others are processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from actors.contracts import DraftPort
from actors.engine.core import Engine
from actors.engine.loading import resolve_dtype
from actors.engine.noport import NoDrafts
from actors.engine.options import EngineOptions
from actors.engine.plan import Plan
from actors.engine.target import Target
from actors.engine.tp.lead import Lead
from actors.engine.tp.rank import serve_rank
from actors.engine.tp.rendezvous import Patience, Rendezvous
from actors.engine.tp.target import LeadTarget

# One process imports torch, the ranks are forked from it: it has started no thread yet.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["actors.engine.tp.rank"])

BLOCKS, BLOCK_SIZE = 64, 8
PATIENCE = Patience(join_s=60.0, load_s=60.0)

RankMain = Callable[[EngineOptions, Rendezvous, int], None]


def be_rank(options: EngineOptions, rendezvous: Rendezvous, rank: int) -> None:
    """What a rank process runs."""
    serve_rank(options, rendezvous, rank, on_lost=lambda reason: os._exit(1))


@dataclass(frozen=True, slots=True)
class Group:
    """A running group; processes: ranks 1 …"""

    lead: Lead
    model: object
    processes: list[BaseProcess]

    def engine(self, port: DraftPort | None = None, *, max_rows: int = 512) -> Engine:
        """The group's one engine: its pool is made once."""
        port = port or NoDrafts()
        target = LeadTarget(self.model, self.lead, port.taps)
        self.lead.agree(target.facts())
        self.lead.start(BLOCKS, BLOCK_SIZE)
        return engine_over(target, port, max_rows=max_rows)


def engine_over(target: Target, port: DraftPort, *, max_rows: int = 512) -> Engine:
    """Over a target that is whole, or rank 0 of one that is cut."""
    engine = Engine(
        target,
        port,
        Plan(4),
        num_blocks=BLOCKS,
        block_size=BLOCK_SIZE,
        max_model_len=256,
        max_num_seqs=4,
        max_num_batched_tokens=max_rows,
    )
    engine.self_check()
    return engine


class Recorded:
    """An engine's whole account of a run."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.logits: list[torch.Tensor] = []
        forward = engine.target.forward

        def recording(*args: Any) -> torch.Tensor:
            self.logits.append(forward(*args).clone())
            return self.logits[-1]

        engine.target.forward = recording  # type: ignore[method-assign]


@contextmanager
def group(
    path: str,
    world: int,
    dtype: str = "float32",
    patience: Patience = PATIENCE,
    main: RankMain = be_rank,
) -> Iterator[Group]:
    """The model at `path` over `world` ranks; all are gone afterwards."""
    torch.set_num_threads(1)
    options = EngineOptions(
        path,
        "verifier",
        tensor_parallel_size=world,
        dtype=dtype,  # type: ignore[arg-type]
        threads=1,
    )
    lead = Lead(world, patience)
    processes: list[BaseProcess] = [
        CONTEXT.Process(target=main, args=(options, lead.rendezvous, rank), daemon=True)
        for rank in range(1, world)
    ]
    for process in processes:
        process.start()
    try:
        yield Group(lead, lead.load(options, resolve_dtype(dtype, "cpu")), processes)
    finally:
        lead.close()
        for process in processes:
            process.join(10.0)
            process.kill()
            process.join()
