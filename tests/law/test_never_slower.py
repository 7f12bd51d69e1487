"""L4 on a computed clock: drafters far away, on text they know little of, never slow a step down.

The clock is exact and nothing runs: a step costs what its rows cost, an ask costs both sides'
processors, a block arrives some time after its ask, and who waits for it waits on this clock.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from actors.contracts import Draft, Gathered
from actors.engine.speculation import Speculation
from policies import waiting
from policies.acceptance import survival
from policies.cost import profiled
from policies.patience import PATIENCE, REST

DEPTH = 4
STEPS = 400
ASK = 0.02
"""Of a step of one row: what a round of asks costs, and in addition,"""
ASK_EACH = 0.001
"""each of them."""


@dataclass
class Request:
    """A text each of whose tokens the drafter knows with a chance of `quality`; it has a block at
    all with one of `fill`. blocks: on their way, as (arrival, length drafted on, tokens)."""

    seed: int
    quality: float
    fill: float
    length: int = 0
    asked: int = DEPTH
    owed: bool = False
    known: list[bool] = field(default_factory=list)
    blocks: list[tuple[float, int, tuple[int, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)

    def knows(self, position: int) -> bool:
        while len(self.known) <= position:
            self.known.append(self._dice.random() < self.quality)
        return self.known[position]

    def ask(self, now: float, delay: float) -> None:
        block: tuple[int, ...] = ()
        if self._dice.random() < self.fill:
            places = range(self.length, self.length + self.asked)
            block = tuple(p if self.knows(p) else -1 for p in places)
        self.blocks.append((now + delay, self.length, block))

    def commit(self, block: tuple[int, ...]) -> list[int]:
        start = self.length
        while self.length - start < len(block) and block[self.length - start] == self.length:
            self.length += 1
        self.length += 1
        return list(range(start, self.length))


class Port:
    """What `RemotePort` does, on the computed clock."""

    def __init__(self, requests: dict[str, Request], delay: float) -> None:
        self.requests, self.delay = requests, delay
        self.arrivals = waiting.Arrivals()

    def gather(
        self, wanted: dict[str, int], worth_s: dict[str, float], now: float
    ) -> tuple[Gathered, float]:
        gathered, began = Gathered(), now
        self._look(gathered, wanted, now)
        late = [name for name, reason in gathered.missing.items() if reason == "late"]
        if late:
            first = min(arrival for name in late for arrival, _, _ in self.requests[name].blocks)
            wait_s = waiting.wait_s(
                sum(worth_s.get(name, 0.0) for name in late),
                waiting.arrival_law(self.arrivals),
                age_s=now - first + self.delay,
            )
            now += min(wait_s, max(0.0, first - now))
            self._look(gathered, dict.fromkeys(late, DEPTH), now)
        return gathered, now - began

    def _look(self, gathered: Gathered, names: dict[str, int], now: float) -> None:
        for name in names:
            gathered.missing.pop(name, None)
            request = self.requests[name]
            come = [b for b in request.blocks if b[0] <= now]
            request.blocks = [b for b in request.blocks if b[0] > now]
            for _, base, block in come:
                self.arrivals = waiting.arrived(self.arrivals, self.delay)
                behind = request.length - base
                right = all(block[i] == base + i for i in range(min(behind, len(block))))
                if right and behind < len(block):
                    gathered.drafts[name] = Draft(block[behind:], "any", True, behind=behind)
                elif block:
                    matched = next((i for i, t in enumerate(block) if t != base + i), len(block))
                    gathered.overtaken[name] = len(block), min(matched, behind)
            if name not in gathered.drafts:
                empty = come and not request.blocks
                gathered.missing[name] = "empty" if empty else "late"


def speed_up(clients: int, slope: float, quality: float, fill: float, delay: float) -> float:
    """Tokens a second against standard decode, from the first step on."""

    def step_s(rows: int) -> float:
        return 1.0 + slope * (rows - 1)

    engine = Speculation(profiled([(1, 1.0), (257, step_s(257))]))
    requests = {str(i): Request(i, quality, fill) for i in range(clients)}
    port, now = Port(requests, delay), 0.0
    for _ in range(STEPS):
        asked = [r for r in requests.values() if r.asked]
        for request in asked:
            request.ask(now, delay)
        now += ASK * bool(asked) + ASK_EACH * len(asked)
        wanted = {name: DEPTH for name, r in requests.items() if r.asked or r.owed}
        gathered, waited = port.gather(wanted, engine.worth(wanted, clients), now)
        engine.heard(gathered)
        chosen = engine.select(gathered.drafts, clients)
        now += waited + step_s(clients + sum(len(d.tokens) for d in chosen.values()))
        for name, request in requests.items():
            request.owed = gathered.missing.get(name) == "late"
            block = chosen[name].tokens if name in chosen else ()
            tokens = request.commit(block)
            if block:
                engine.verified(name, len(block), len(tokens) - 1)
            engine.settle(name, tokens)
            request.asked = engine.ask(name, DEPTH)
    return sum(r.length for r in requests.values()) / now * step_s(clients) / clients


DRAFTERS = [(0.0, 0.0), (0.0, 1.0), (0.2, 0.1), (0.2, 1.0), (0.5, 0.4), (0.8, 0.4), (0.95, 0.1)]
"""(quality, fill): nothing to say, garbage, a suffix tree on new text, …, right but seldom."""


@pytest.mark.parametrize("clients", [1, 4, 12, 32])
@pytest.mark.parametrize(("slope", "delay"), [(0.02, 0.15), (0.15, 0.15), (0.6, 0.15), (0.02, 1.5)])
def test_remote_drafters_never_make_it_slower_than_standard_decode(
    clients: int, slope: float, delay: float
) -> None:
    for quality, fill in DRAFTERS:
        assert speed_up(clients, slope, quality, fill, delay) >= 0.98, (quality, fill)


def test_good_blocks_are_waited_for() -> None:
    """What is lost by going without them: with a wait of a sixth of a step, hardly anything."""
    in_time, near = (speed_up(1, 0.02, 0.95, 1.0, delay) for delay in (0.0, 0.15))
    assert near > 0.85 * in_time > 2.5
    assert speed_up(1, 0.02, 0.95, 1.0, 1.5) > 1.5  # and beyond it their tails are used


def test_a_drafter_with_nothing_to_say_is_soon_left_alone() -> None:
    engine = Speculation(profiled([(1, 1.0)]))
    asks = 0
    for _ in range(10 * REST):
        asks += bool(engine.ask("r", DEPTH))
        engine.worth({"r": DEPTH}, 1)
        engine.heard(Gathered(missing={"r": "empty"}))
    assert asks <= PATIENCE + 10


@pytest.mark.parametrize("reason", ["cold", "no-drafter", "isolated"])
def test_who_could_not_draft_has_not_drafted_in_vain(reason: str) -> None:
    engine = Speculation(profiled([(1, 1.0)]))
    for _ in range(10 * REST):
        assert engine.ask("r", DEPTH) == DEPTH
        engine.heard(Gathered(missing={"r": reason}))


def test_late_blocks_count_whether_or_not_they_were_lucky() -> None:
    """A drafter that is right half the time on the first token and never after it, always a step
    late: its tails alone would be all wrong, its dropped blocks alone all wrong, together half."""
    engine = Speculation(profiled([(1, 1.0), (65, 1.65)]))
    for turn in range(100):
        engine.ask("r", 2)
        if turn % 2:
            engine.heard(Gathered(overtaken={"r": (2, 0)}))
        else:
            engine.select({"r": Draft((5,), "any", True, behind=1)}, 1)
            engine.settle("r", [6])
    first, both = survival(engine._track("r").acceptance, 2)
    assert first == pytest.approx(0.5, abs=0.05)
    assert both < 0.1
