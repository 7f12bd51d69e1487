"""A rank other than 0: waits on the control channel, computes its part of each step it is told.

It decides nothing and samples nothing. While nothing is to be done it waits outside any
collective, so an idle group costs heartbeats and nothing times out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Client
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from actors.engine.errors import EngineError
from actors.engine.kv import KVPool
from actors.engine.loading import resolve_dtype
from actors.engine.options import EngineOptions
from actors.engine.tp.channel import TAG_BYTES, Channel, ChannelLost
from actors.engine.tp.loading import load_shard
from actors.engine.tp.protocol import (
    FAILED,
    POOL,
    READY,
    REFERENCE,
    STEP,
    STOP,
    PoolSizes,
    form_group,
    limit_collectives,
    open_store,
)
from actors.engine.tp.rendezvous import LOOPBACK, Rendezvous
from actors.engine.tp.step import StepDecoder
from actors.engine.tp.target import RankTarget


def serve_rank(
    options: EngineOptions,
    rendezvous: Rendezvous,
    rank: int,
    on_lost: Callable[[str], None],
) -> None:
    """Be rank `rank` until rank 0 says stop. `on_lost`: rank 0 is gone, from any thread; it
    should not return, because this rank may be inside a collective."""
    if options.threads:
        torch.set_num_threads(options.threads)
    transformers_logging.disable_progress_bar()
    channel = connect(rendezvous, rank)
    channel.guard(on_lost)
    try:
        target = _load(options, rendezvous, rank)
        channel.send(READY, target.facts().to_bytes())
        tag, payload = channel.receive(rendezvous.patience.load_s)
        if tag == POOL:
            _serve(channel, target, PoolSizes.from_bytes(payload))
    except Exception as error:
        with suppress(ChannelLost):
            channel.send(FAILED, str(error).encode())
        raise
    finally:
        channel.close()


def connect(rendezvous: Rendezvous, rank: int) -> Channel:
    """The control channel to rank 0."""
    connection = Client((LOOPBACK, rendezvous.control_port), authkey=rendezvous.key)
    connection.send_bytes(rank.to_bytes(TAG_BYTES))
    return Channel(connection, "rank 0", rendezvous.patience)


def _load(options: EngineOptions, rendezvous: Rendezvous, rank: int) -> RankTarget:
    store = open_store(rendezvous)
    form_group(rendezvous, rank, store, options.device)
    dtype = resolve_dtype(options.dtype, options.device)
    model: Any = load_shard(
        options.model_path, options.revision, dtype, options.device, rendezvous.world
    )
    limit_collectives(rendezvous, model)
    return RankTarget(model, rendezvous.world, device=options.device)


def _serve(channel: Channel, target: RankTarget, sizes: PoolSizes) -> None:
    info = target.info
    pool = KVPool(info.spec, sizes.num_blocks, sizes.block_size, info.dtype, target.device)
    decoder = StepDecoder(sizes.block_size, target.device)
    while True:
        tag, payload = channel.receive()
        if tag == STEP:
            target.forward(decoder.decode(payload), pool)
        elif tag == REFERENCE:
            target.reference(decoder.decode(payload))
        elif tag == STOP:
            return
        else:
            raise EngineError(f"rank 0 said {tag!r}")
