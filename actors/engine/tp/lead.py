"""Rank 0's hold on the other ranks: finds them, tells them each step, notices their loss.

Any loss or failed step ends the whole group: after half a collective nobody knows what the other
ranks hold, so the process ends, its replica is replaced, and its requests go on elsewhere from
their committed tokens.
"""

from __future__ import annotations

import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener
from typing import Any

import torch
import torch.distributed as dist

from actors.engine.errors import EngineError, ModelLoadError
from actors.engine.options import EngineOptions
from actors.engine.tp.channel import TAG_BYTES, Channel
from actors.engine.tp.loading import check_cuttable, load_shard
from actors.engine.tp.protocol import (
    FAILED,
    POOL,
    READY,
    STOP,
    PoolSizes,
    RankFacts,
    form_group,
    limit_collectives,
    open_store,
)
from actors.engine.tp.rendezvous import LOOPBACK, Patience, Rendezvous

_HELLO_S = 10.0


class Lead:
    """Made before the other ranks; `rendezvous` is what they are started with.

    load, agree and start in this order, each once; then `together` a step at a time, on the
    engine's thread.
    """

    def __init__(self, world: int, patience: Patience = Patience()) -> None:
        self.world = world
        self._channels: dict[int, Channel] = {}
        self._on_lost: Callable[[str], None] | None = None
        listening = socket.create_server((LOOPBACK, 0))
        key = secrets.token_bytes(32)
        self._listener = Listener((LOOPBACK, 0), backlog=world, authkey=key)
        self.rendezvous = Rendezvous(
            world,
            store_port=listening.getsockname()[1],
            control_port=int(self._listener.address[1]),
            key=key,
            patience=patience,
        )
        self._store = open_store(self.rendezvous, listening.detach())
        self._arrivals: queue.SimpleQueue[tuple[int, Connection]] = queue.SimpleQueue()
        threading.Thread(target=self._accept, name="rank-listener", daemon=True).start()

    # -- start ------------------------------------------------------------------------------

    def load(self, options: EngineOptions, dtype: torch.dtype) -> Any:
        """Wait for every rank, form the process group and load rank 0's shard, as the others do
        theirs. Raises EngineError, at once for a model that cannot be cut."""
        path, revision, device = options.model_path, options.revision, options.device
        check_cuttable(path, revision, device, self.world)
        self._join()
        form_group(self.rendezvous, 0, self._store, device)
        model = load_shard(path, revision, dtype, device, self.world)
        limit_collectives(self.rendezvous, model)
        return model

    def _join(self) -> None:
        deadline = time.monotonic() + self.rendezvous.patience.join_s
        while len(self._channels) < self.world - 1:
            try:
                rank, connection = self._arrivals.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                away = sorted({*range(1, self.world)} - self._channels.keys())
                raise EngineError(
                    f"rank {', '.join(map(str, away))} of {self.world} did not come within "
                    f"{self.rendezvous.patience.join_s:g} s"
                ) from None
            self._channels[rank] = Channel(connection, f"rank {rank}", self.rendezvous.patience)

    def agree(self, own: RankFacts) -> int:
        """Wait until all shards are loaded; the least free memory of any rank, in bytes.

        Raises ModelLoadError with the reason of a rank that could not load, or whose shard is
        not of the same model.
        """
        least = own.free_bytes
        for rank, channel in self._channels.items():
            tag, payload = channel.receive(self.rendezvous.patience.load_s)
            if tag == FAILED:
                raise ModelLoadError(f"rank {rank}: {payload.decode()}", param="model")
            facts = RankFacts.from_bytes(payload) if tag == READY else None
            if facts is None or facts.shard != own.shard:
                raise ModelLoadError(
                    f"rank {rank} loaded {facts.shard if facts else tag!r}, rank 0 {own.shard}",
                    param="model",
                )
            least = min(least, facts.free_bytes)
        return least

    def start(self, num_blocks: int, block_size: int) -> None:
        """Ranks make their pools, of rank 0's sizes, and wait for steps."""
        self._tell(POOL, PoolSizes(num_blocks, block_size).to_bytes())

    def guard(self, on_lost: Callable[[str], None]) -> None:
        """From now on the loss of a rank, or a step that failed, calls `on_lost` with a reason;
        from any thread, and it should not return."""
        self._on_lost = on_lost
        for channel in self._channels.values():
            channel.guard(on_lost)

    # -- serving ----------------------------------------------------------------------------

    @contextmanager
    def together(self, tag: bytes, payload: bytes) -> Iterator[None]:
        """Tell every rank what to compute; the body is rank 0's own part of it."""
        try:
            self._tell(tag, payload)
            yield
        except Exception as error:
            if self._on_lost is not None:
                self._on_lost(f"a step failed: {error}")
            raise

    def _tell(self, tag: bytes, payload: bytes) -> None:
        for channel in self._channels.values():
            channel.send(tag, payload)

    def close(self) -> None:
        """Let the ranks end, then leave the group."""
        self._listener.close()
        for channel in self._channels.values():
            channel.close(farewell=STOP)
        if dist.is_initialized():
            dist.destroy_process_group()

    # -- thread -----------------------------------------------------------------------------

    def _accept(self) -> None:
        """Whoever has the key and says a rank's number in time; anybody else is left standing.
        Nobody is let in when all are there."""
        arrived = 0
        while arrived < self.world - 1:
            try:
                connection = self._listener.accept()
            except (AuthenticationError, EOFError, ConnectionError):
                continue
            except OSError:  # closed
                return
            with suppress(EOFError, OSError):
                if connection.poll(_HELLO_S):
                    rank = int.from_bytes(connection.recv_bytes(TAG_BYTES))
                    self._arrivals.put((rank, connection))
                    arrived += 1
        self._listener.close()
