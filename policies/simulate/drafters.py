"""Remote drafters: each takes everything that waits as one batch, whenever it is free.

A newer ask of a request replaces its older one in the queue, as a session's commits are coalesced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from policies.simulate.clock import Clock
from policies.simulate.scenario import Fault, Scenario, Way
from policies.simulate.texts import Block, Texts


@dataclass(frozen=True, slots=True)
class Order:
    """One session's ask as it reaches a drafter. answer: called with the block when it has come
    back; settled: once for the whole frame, after its last block."""

    verifier: int
    request: int
    cohort: str
    base: int
    depth: int
    answer: Callable[[Block], None]
    settled: Callable[[], None]


class Troubles:
    """Which drafter suffers what, now."""

    def __init__(self, faults: Iterable[Fault], clock: Clock) -> None:
        self._faults, self._clock = tuple(faults), clock

    def of(self, way: str, index: int) -> dict[str, float]:
        """Kind of trouble -> factor."""
        now = self._clock.now_s
        return {
            f.kind: f.factor
            for f in self._faults
            if f.way == way and f.drafter in (None, index) and f.at_s <= now < f.until_s
        }


class Drafter:
    """busy_s: seconds it has drafted."""

    def __init__(self, name: str, way: Way, index: int, world: Drafting) -> None:
        self.name, self.way, self.index = name, way, index
        self.busy_s = 0.0
        self.sessions = 0
        self._world = world
        self._queue: dict[tuple[int, int], Order] = {}
        self._busy = False

    def take(self, orders: Iterable[Order]) -> None:
        """A frame has arrived."""
        if "dead" in self._world.troubles.of(self.name, self.index):
            return
        for order in orders:
            self._queue.pop((order.verifier, order.request), None)
            self._queue[order.verifier, order.request] = order
        self._go()

    def _go(self) -> None:
        if self._busy or not self._queue:
            return
        batch = list(self._queue.values())
        self._queue.clear()
        took_s = self.way.block_s(len(batch), max(order.depth for order in batch))
        took_s *= self._world.troubles.of(self.name, self.index).get("slow", 1.0)
        self.busy_s += took_s
        self._busy = True
        self._world.clock.after(took_s, lambda: self._done(batch, took_s))

    def _done(self, batch: list[Order], took_s: float) -> None:
        self._busy = False
        troubles = self._world.troubles.of(self.name, self.index)
        if "dead" in troubles:
            self._queue.clear()
            return
        for verifier in sorted({order.verifier for order in batch}):
            mine = [order for order in batch if order.verifier == verifier]
            blocks = [
                self._world.texts.block(
                    self.name, o.cohort, o.base, o.depth, useless="useless" in troubles
                )
                for o in mine
            ]
            for block in blocks:
                block.draft_s = took_s
            size = 24.0 + sum(24.0 + 4.0 * block.size for block in blocks)
            self._world.send(size, partial(_answer, mine, blocks))
        self._go()


class Drafting:
    """All remote drafters by way, and the wire to them."""

    def __init__(self, scenario: Scenario, clock: Clock, texts: Texts) -> None:
        self.clock, self.texts = clock, texts
        self.troubles = Troubles(scenario.faults, clock)
        self._wire = scenario.wire
        self._rng = np.random.default_rng((scenario.seed, 2))
        self.drafters = {
            name: [Drafter(name, way, i, self) for i in range(way.drafters)]
            for name, way in scenario.ways.items()
            if way.remote
        }

    def send(self, size_bytes: float, arrive: Callable[[], None]) -> None:
        """One frame, one way."""
        delay_s = self._wire.rtt_s / 2 + size_bytes / self._wire.bytes_s
        if self._wire.jitter:
            delay_s += self._rng.exponential(self._wire.jitter * self._wire.rtt_s / 2)
        self.clock.after(delay_s, arrive)


def _answer(orders: list[Order], blocks: list[Block]) -> None:
    for order, block in zip(orders, blocks, strict=True):
        order.answer(block)
    orders[-1].settled()
