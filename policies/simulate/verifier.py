"""One simulated verifier: admit, wait for blocks as long as they are worth it, step, commit, ask.

The order is the engine's own (actors.engine.core): blocks are gathered before a forward, what is
verified is chosen once they are there, and the next round is asked for after the commit. A row
whose block is late writes one token and keeps the tail of the block that is still right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from policies import pace, waiting
from policies.simulate.account import Account
from policies.simulate.asking import Asking
from policies.simulate.costs import Costs
from policies.simulate.drafters import Drafting
from policies.simulate.links import Link
from policies.simulate.policy import (
    Ask,
    Came,
    Offer,
    Policy,
    RowView,
    Score,
    Stepped,
    StepView,
    WayView,
)
from policies.simulate.scenario import Scenario
from policies.simulate.texts import Block

_INSTANT_S = 1e-9
"""A wait that is over: what rounding leaves of one must not be waited for again and again."""


@dataclass(slots=True)
class Row:
    """A request. read: prompt tokens computed; length: committed tokens, left: still to write.
    blocks: by way, the newest that may be verified; unscored: all whose worth is not known yet.
    open: by way, the newest ask that is waited for. wrote: tokens of its last commit."""

    request: int
    cohort: str
    prompt: int
    left: int
    arrived_s: float
    read: int = 0
    length: int = 0
    first_s: float = 0.0
    wrote: int = 0
    output: int = 0
    blocks: dict[str, Block] = field(default_factory=dict)
    unscored: list[Block] = field(default_factory=list)
    open: dict[str, Ask] = field(default_factory=dict)

    @property
    def writing(self) -> bool:
        return self.read >= self.prompt


class Verifier:
    def __init__(
        self,
        index: int,
        scenario: Scenario,
        costs: Costs,
        policy: Policy,
        drafting: Drafting,
        account: Account,
        finished: Callable[[Row], None],
    ) -> None:
        self.policy, self.account = policy, account
        self.rows: dict[int, Row] = {}
        self.queue: deque[Row] = deque()
        self._scenario, self._costs, self._finished = scenario, costs, finished
        self._clock = drafting.clock
        self._asking = Asking(index, scenario, drafting, self._came, self._wait)
        self._pace = pace.Pace()
        self._running = False
        self._waiting: StepView | None = None
        self._since_s = 0.0
        self._turn = 0
        self._ended_s = self._woke_s = 0.0
        self._arrived: dict[str, list[tuple[int, float, float | None]]] = {}

    @property
    def load(self) -> int:
        return len(self.rows) + len(self.queue)

    def submit(self, row: Row) -> None:
        row.output = row.left
        self.queue.append(row)
        if not self._running:
            self._running, self._woke_s = True, self._clock.now_s
            self._begin()

    # -- gathering --------------------------------------------------------------------------

    def _begin(self) -> None:
        while self.queue and len(self.rows) < self._scenario.max_num_seqs:
            row = self.queue.popleft()
            self.rows[row.request] = row
        if not self.rows:
            self._running = False
            return
        self._since_s = self._clock.now_s
        self._waiting = self._view([row for row in self.rows.values() if row.writing])
        self._wait()

    def _wait(self) -> None:
        """Now or later: wait for what is missing, or step."""
        view = self._waiting
        if view is None:
            return
        self._turn += 1
        pause_s = self._pause_s(view)
        if pause_s <= _INSTANT_S:
            self._step(view)
            return
        turn = self._turn
        self._clock.after(pause_s, lambda: self._wait() if turn == self._turn else None)

    def _pause_s(self, view: StepView) -> float:
        missing = self._missing()
        if not missing:
            return 0.0
        waited_s = self._clock.now_s - self._since_s
        worth_s = self.policy.worth_s(view, [ask for ask, _ in missing])
        if worth_s <= waited_s:
            return 0.0
        ages: dict[int, tuple[Link, float]] = {}
        for ask, link in missing:
            age_s = self._clock.now_s - link.asked[ask.request][0]
            ages[id(link)] = link, min(age_s, ages.get(id(link), (link, age_s))[1])
        return max(
            waiting.wait_s(worth_s, link.law, age_s=age_s, waited_s=waited_s)
            for link, age_s in ages.values()
        )

    def _missing(self) -> list[tuple[Ask, Link]]:
        """Asks whose block is still out and has nothing usable before it."""
        found = []
        for row in self.rows.values():
            for way, ask in row.open.items():
                block = row.blocks.get(way)
                link = self._asking.link(way, row.request)
                out = link is not None and row.request in link.asked
                if out and link is not None and not (block and block.usable(row.length)):
                    found.append((ask, link))
        return found

    def _came(
        self, request: int, block: Block, *, shadow: bool, trip_s: float | None = None
    ) -> None:
        """A block has arrived, or been drafted here."""
        row = self.rows.get(request)
        if row is None:
            return
        if trip_s is not None or block.way not in self._asking.remote:
            self._arrived.setdefault(block.way, []).append((block.asked, block.draft_s, trip_s))
        row.unscored.append(block)
        if not shadow:
            row.open.pop(block.way, None)
            row.blocks[block.way] = block
        self._score(row)

    # -- the step ---------------------------------------------------------------------------

    def _step(self, view: StepView) -> None:
        self._waiting = None
        self.account.waited_s += self._clock.now_s - self._since_s
        offers = [
            Offer(row.request, way, size)
            for row in self.rows.values()
            for way, block in row.blocks.items()
            if (size := min(block.usable(row.length), row.left - 1)) > 0
        ]
        self._went_without({(offer.request, offer.way) for offer in offers})
        chosen = self.policy.choose(view, offers)
        sizes = {(offer.request, offer.way): offer.size for offer in offers}
        depths = {
            request: (way, min(depth, sizes.get((request, way), 0)))
            for request, (way, depth) in chosen.items()
        }
        chunks = self._chunks()
        writers = sum(row.writing for row in self.rows.values())
        prompts = sum(chunks.values())
        rows = writers + prompts + sum(depth for _, depth in depths.values())
        context = sum(row.length or row.read for row in self.rows.values())
        took_s = self._costs.step_s(rows, max(1, writers + len(chunks)), context)
        self._clock.after(took_s, lambda: self._commit(depths, chunks, rows, took_s))

    def _went_without(self, served: set[tuple[int, str]]) -> None:
        missing = self._missing()
        if not missing:
            return
        self.account.late += len(missing)
        self.policy.late([ask for ask, _ in missing])
        answered = {id(self._asking.link(way, request)) for request, way in served}
        for link in {id(link): link for _, link in missing}.values():
            if id(link) not in answered:
                link.missed(self._clock.now_s)

    def _chunks(self) -> dict[int, int]:
        """Rows of prompts in this step, oldest first, beside running streams."""
        room = self._scenario.prompt_rows
        if any(row.writing for row in self.rows.values()):
            room = pace.prompt_rows(self._pace, room)
        chunks: dict[int, int] = {}
        for row in self.rows.values():
            count = min(row.prompt - row.read, room)
            if count > 0:
                chunks[row.request] = count
                room -= count
        return chunks

    def _commit(
        self,
        depths: Mapping[int, tuple[str, int]],
        chunks: Mapping[int, int],
        rows: int,
        took_s: float,
    ) -> None:
        self.account.steps += 1
        self.account.verify_s += took_s
        prompts = sum(chunks.values())
        self._pace = pace.observed(self._pace, took_s, prompts)
        wrote = {row.cohort: 0 for row in self.rows.values()}
        for row in list(self.rows.values()):
            if row.request in chunks:
                row.read += chunks[row.request]
                if row.writing:
                    row.length, row.first_s = row.prompt, self._clock.now_s
                    self._write(row, "", 0, 0)
            elif row.writing:
                way, depth = depths.get(row.request, ("", 0))
                right = row.blocks[way].right - (row.length - row.blocks[way].base) if depth else 0
                self._write(row, way, depth, min(right, depth))
            if row.writing:
                wrote[row.cohort] += row.wrote
        step_s = self._clock.now_s - max(self._ended_s, self._woke_s)
        self._ended_s = self._clock.now_s
        self.policy.stepped(Stepped(rows, prompts, took_s, step_s, wrote, self._drafted()))
        self._ask()

    def _drafted(self) -> list[Came]:
        """Blocks that came since the last step, by way."""
        arrived, self._arrived = self._arrived, {}
        return [
            Came(
                way,
                len(blocks),
                max(depth for depth, _, _ in blocks),
                max(draft_s for _, draft_s, _ in blocks),
                max((trip_s for _, _, trip_s in blocks if trip_s is not None), default=None),
            )
            for way, blocks in arrived.items()
        ]

    def _write(self, row: Row, way: str, drafted: int, accepted: int) -> None:
        row.wrote = accepted + 1
        row.length += row.wrote
        row.left -= row.wrote
        self.account.wrote(
            self._clock.now_s,
            row.cohort,
            way,
            drafted=drafted,
            accepted=accepted,
            tokens=row.wrote,
        )
        self._score(row)
        if row.left <= 0:
            del self.rows[row.request]
            self._asking.forget(row.request)
            self.policy.forget(row.request)
            self._finished(row)

    def _score(self, row: Row) -> None:
        """Tell what the committed text shows by now of the blocks that have come."""
        for block in [block for block in row.unscored if block.decided(row.length)]:
            row.unscored.remove(block)
            self.policy.scored(
                Score(row.request, row.cohort, block.way, block.asked, block.size, block.right)
            )

    def _ask(self) -> None:
        rows = [row for row in self.rows.values() if row.writing]
        for row in rows:
            row.open.clear()
        view = self._view(rows)
        asks = list(self.policy.ask(view)) if rows else []
        for ask in asks:
            if not ask.shadow:
                self.rows[ask.request].open[ask.way] = ask
        drafted_s = self._asking.send(asks, self.rows)
        self.account.drafted_s += drafted_s
        if drafted_s > 0.0:
            self._clock.after(drafted_s, self._begin)
        else:
            self._begin()

    def _view(self, rows: list[Row]) -> StepView:
        views = [RowView(row.request, row.cohort, row.left - 1) for row in rows]
        prompts = sum(row.prompt - row.read for row in self.rows.values())
        context = sum(row.length or row.read for row in self.rows.values())
        return StepView(
            self._clock.now_s,
            views,
            {name: self._way(name) for name in self._scenario.ways},
            min(prompts, self._scenario.prompt_rows),
            context,
        )

    def _way(self, name: str) -> WayView:
        way = self._scenario.ways[name]
        up, latency_s = self._asking.state(name)
        return WayView(up, way.remote, way.max_depth, latency_s)
