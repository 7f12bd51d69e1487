"""How asks leave a verifier: to a remote drafter in one frame a link, or drafted on its own device
before the next step can begin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from policies.simulate.drafters import Drafting, Order
from policies.simulate.links import Link, Links
from policies.simulate.policy import Ask
from policies.simulate.scenario import Scenario
from policies.simulate.texts import Block

if TYPE_CHECKING:
    from policies.simulate.verifier import Row


class Came(Protocol):
    def __call__(
        self, request: int, block: Block, *, shadow: bool, trip_s: float | None = None
    ) -> None: ...


class Asking:
    """One verifier's. came: with each block; settled: after the last one of a frame."""

    def __init__(
        self,
        index: int,
        scenario: Scenario,
        drafting: Drafting,
        came: Came,
        settled: Callable[[], None],
    ) -> None:
        self._index, self._scenario, self._drafting = index, scenario, drafting
        self._came, self._settled = came, settled
        self._links = {name: Links(index, drafters) for name, drafters in drafting.drafters.items()}
        self.remote = frozenset(self._links)

    def link(self, way: str, request: int) -> Link | None:
        """Where the session is, None where it is nowhere or the way is the verifier's own."""
        links = self._links.get(way)
        return links.places.get(request) if links else None

    def state(self, way: str) -> tuple[bool, float | None]:
        """(some drafter takes sessions, median seconds to a block)."""
        if (links := self._links.get(way)) is not None:
            return links.up(self._drafting.clock.now_s), links.latency_s()
        of = self._scenario.ways[way]
        up = "dead" not in self._drafting.troubles.of(way, self._index)
        return up, of.base_s + of.session_s + of.token_s * of.max_depth

    def forget(self, request: int) -> None:
        for links in self._links.values():
            links.leave(request, self._drafting.clock.now_s)

    def send(self, asks: Sequence[Ask], rows: Mapping[int, Row]) -> float:
        """Seconds of drafting on the verifier's own device; its blocks are there afterwards."""
        drafted_s = 0.0
        for name in self._scenario.ways:
            mine = [ask for ask in asks if ask.way == name and ask.depth > 0]
            if mine and name in self._links:
                self._send_remote(name, mine, rows)
            elif mine:
                drafted_s += self._draft_here(name, mine, rows)
        return drafted_s

    def _send_remote(self, name: str, asks: Sequence[Ask], rows: Mapping[int, Row]) -> None:
        now_s, links = self._drafting.clock.now_s, self._links[name]
        frames: dict[int, tuple[Link, list[Order]]] = {}
        sizes: dict[int, float] = defaultdict(lambda: 24.0)
        for ask in asks:
            if (link := links.place(ask.request, now_s)) is None:
                continue
            row = rows[ask.request]
            link.ask(ask.request, now_s, row.length, ask.depth)
            order = self._order(ask, row, link)
            frames.setdefault(id(link), (link, []))[1].append(order)
            each = 4.0 + self._scenario.ways[name].feature_bytes
            sizes[id(link)] += 24.0 + each * row.wrote
        for key, (link, orders) in frames.items():
            self._drafting.send(sizes[key], partial(link.drafter.take, orders))

    def _order(self, ask: Ask, row: Row, link: Link) -> Order:
        def answer(block: Block) -> None:
            took_s = link.heard(ask.request, self._drafting.clock.now_s, block.base)
            trip_s = None if took_s is None else max(0.0, took_s - block.draft_s)
            self._came(ask.request, block, shadow=ask.shadow, trip_s=trip_s)

        return Order(
            self._index, ask.request, row.cohort, row.length, ask.depth, answer, self._settled
        )

    def _draft_here(self, name: str, asks: Sequence[Ask], rows: Mapping[int, Row]) -> float:
        troubles = self._drafting.troubles.of(name, self._index)
        if "dead" in troubles:
            return 0.0
        way = self._scenario.ways[name]
        took_s = way.block_s(len(asks), max(ask.depth for ask in asks)) * troubles.get("slow", 1.0)
        for ask in asks:
            row = rows[ask.request]
            block = self._drafting.texts.block(
                name, row.cohort, row.length, ask.depth, useless="useless" in troubles
            )
            block.draft_s = took_s
            self._came(ask.request, block, shadow=ask.shadow)
        return took_s
