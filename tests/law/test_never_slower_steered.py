"""L4 with the policy in the engine's seat, on a computed clock: a co-located drafter takes its time
from every step that asks it, and what it takes is weighed against what it brings.

The clock is exact and nothing runs: a step costs what its rows cost and what its blocks took.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from actors.contracts import Draft, Gathered
from actors.engine.plan import Depth
from actors.engine.sequence import EngineRequest
from actors.engine.speculation import Speculation
from actors.engine.steering import Steering, steered
from actors.sampling.params import SamplingParams
from policies.choice import Arm
from policies.estimate_cost import Sample

DEPTH = 4
STEPS = 500
UNIT = 0.015
"""Seconds of a step of one row."""
SUFFIX = Arm("suffix", remote=False, max_depth=16)
LEARNED = Arm("eagle3", remote=False, max_depth=6)


@dataclass
class Drafter:
    """quality: the chance that it knows a token; fill: that it has a block at all. first_s,
    token_s: of blocks, for all sessions at once. reads_s: once for each request."""

    arm: Arm
    quality: float
    fill: float
    first_s: float
    token_s: float
    reads_s: float = 0.0

    def takes_s(self, depth: int) -> float:
        return (self.first_s + self.token_s * depth) if depth else 0.0


@dataclass
class Request:
    """What the engine's `Sequence` is to the policy, with a text that drafters know parts of."""

    request_id: str
    drafters: Sequence[Drafter]
    cohort: str = ""
    length: int = 0
    drafting: bool = True
    owed: bool = False
    pending: int = 1
    depth: int = 0
    asked: int = 0
    arm: Arm | None = None
    shadow: tuple[Arm, int] | None = None
    depth_reason: str = ""
    remaining: int = 1 << 20
    known: dict[str, list[bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.request = EngineRequest(self.request_id, (1,), SamplingParams(), cohort=self.cohort)
        self._dice = {d.arm.mechanism: random.Random(self.request_id) for d in self.drafters}

    @property
    def tokens(self) -> range:
        return range(self.length)

    def block(self, arm: Arm, depth: int) -> tuple[int, ...]:
        drafter = next(d for d in self.drafters if d.arm == arm)
        dice = self._dice[arm.mechanism]
        if dice.random() >= drafter.fill:
            return ()
        known = self.known.setdefault(arm.mechanism, [])
        while len(known) <= self.length + depth:
            known.append(dice.random() < drafter.quality)
        return tuple(p if known[p] else -1 for p in range(self.length, self.length + depth))

    def commit(self, block: tuple[int, ...]) -> list[int]:
        start = self.length
        while self.length - start < len(block) and block[self.length - start] == self.length:
            self.length += 1
        self.length += 1
        return list(range(start, self.length))


@dataclass
class World:
    """An engine's loop around `steering`, on the computed clock."""

    speculation: Speculation
    steering: Steering
    requests: list[Request]
    drafters: Sequence[Drafter]
    slope: float
    now: float = 0.0
    steps: int = 0
    asked: int = 0
    asking_s: float = 0.0
    read: set[tuple[str, Arm]] = field(default_factory=set)

    @property
    def clients(self) -> int:
        return len(self.requests)

    def step_s(self, rows: int) -> float:
        return UNIT * (1.0 + self.slope * (rows - 1))

    def step(self) -> None:
        """As the engine does it: blocks are there or are waited for, forward, and what is asked for
        the next step is decided before this one is learnt from."""
        gathered, drafting_s = self._gather()
        self.speculation.heard(gathered)
        self.steering.heard(gathered, self.asking_s)
        chosen = self.speculation.select(
            gathered.drafts,
            self.clients,
            most=self.steering.most(gathered.drafts),
            spent_s=self.steering.spent_s,
        )
        rows = self.clients + sum(len(draft.tokens) for draft in chosen.values())
        forward_s = self.step_s(rows)
        written = 0
        for request in self.requests:
            block = chosen.get(request.request_id)
            tokens = request.commit(block.tokens if block else ())
            if block:
                self.speculation.verified(request.request_id, len(block.tokens), len(tokens) - 1)
            written += len(tokens)
            self.speculation.settle(request.request_id, tokens)
        self.asking_s = self._decide()
        step_s = forward_s + drafting_s + self.asking_s
        self.now += step_s
        self.steps += 1
        if self.steering.learnt(self.clients, written, step_s, forward_s):
            return
        self.steering.learn(
            {"default": self.clients},
            {"default": written},
            gathered,
            rows=rows,
            forward_s=forward_s,
            step_s=step_s,
        )

    def _decide(self) -> float:
        """For the next step; the seconds that telling and asking took."""
        sequences: Any = self.requests
        if self.steering.still(sequences):
            for request in self.requests:
                request.asked, request.shadow = 0, None
            return 0.0
        caps = {r.request_id: Depth(DEPTH) for r in self.requests}
        self.steering.decide(sequences, [d.arm for d in self.drafters], caps, DEPTH)
        for seq in sequences:
            self.steering.ask(seq, caps[seq.request_id])
        return self._read()

    def _read(self) -> float:
        """A drafter reads a text before it drafts for it the first time."""
        took_s = 0.0
        for request in self.requests:
            arms = [request.arm if request.asked else None, request.shadow and request.shadow[0]]
            for drafter in self.drafters:
                if drafter.arm in arms and (request.request_id, drafter.arm) not in self.read:
                    self.read.add((request.request_id, drafter.arm))
                    took_s += drafter.reads_s
        return took_s

    def _gather(self) -> tuple[Gathered, float]:
        gathered, took_s = Gathered(), 0.0
        for drafter in self.drafters:
            arm = drafter.arm
            asks = [(r, r.asked) for r in self.requests if r.arm == arm and r.asked]
            shadows = [(r, r.shadow[1]) for r in self.requests if r.shadow and r.shadow[0] == arm]
            self.asked += len(asks) + len(shadows)
            mine_s = drafter.takes_s(max((depth for _, depth in asks + shadows), default=0))
            took_s += mine_s
            for request, depth in asks:
                if block := request.block(arm, depth):
                    draft = Draft(block, arm.mechanism, False, int(mine_s * 1e6))
                    gathered.drafts[request.request_id] = draft
                else:
                    gathered.missing[request.request_id] = "empty"
            for request, depth in shadows:
                if block := request.block(arm, depth):
                    draft = Draft(block, arm.mechanism, False, int(mine_s * 1e6))
                    gathered.shadows[request.request_id] = arm, draft
        return gathered, took_s

    def speed_up(self) -> float:
        """Tokens a second against standard decode, from the first step on."""
        tokens = sum(request.length for request in self.requests)
        return tokens / self.now * self.step_s(self.clients) / self.clients


def world(clients: int, slope: float, *drafters: Drafter) -> World:
    curve = [Sample(1, UNIT), Sample(257, UNIT * (1.0 + slope * 256))]
    speculation, steering = steered(curve, "coupled", DEPTH, "verifier")
    requests = [Request(str(i), drafters) for i in range(clients)]
    return World(speculation, steering, requests, drafters, slope)


def run(clients: int, slope: float, *drafters: Drafter) -> World:
    made = world(clients, slope, *drafters)
    for _ in range(STEPS):
        made.step()
    return made


@pytest.mark.parametrize("clients", [1, 4, 32])
@pytest.mark.parametrize("slope", [0.02, 0.15, 0.6])
@pytest.mark.parametrize("price", [0.01, 0.2, 1.0])
def test_a_drafter_that_takes_its_time_never_makes_it_slower_than_standard_decode(
    clients: int, slope: float, price: float
) -> None:
    """price: of a block of one token, in steps of one row; half as much again for each more."""
    for quality in (0.0, 0.3, 0.95):
        first_s = price * UNIT
        drafter = Drafter(LEARNED, quality, 1.0, first_s / 2, first_s / 2)
        assert run(clients, slope, drafter).speed_up() >= 0.98, quality


@pytest.mark.parametrize("clients", [1, 4, 12])
def test_texts_that_a_drafter_has_to_read_first_are_paid_for(clients: int) -> None:
    """Reading takes it three steps a request, and what it drafts is worth nothing."""
    drafter = Drafter(LEARNED, 0.1, 1.0, UNIT / 10, UNIT / 10, reads_s=3 * UNIT)
    assert run(clients, 0.15, drafter).speed_up() >= 0.98


def test_a_dear_drafter_that_brings_little_is_asked_for_evidence_alone() -> None:
    made = run(1, 0.15, Drafter(LEARNED, 0.3, 1.0, UNIT / 2, UNIT / 4))
    assert made.asked < STEPS / 10


def test_a_good_drafter_is_used_though_it_takes_its_time() -> None:
    assert run(1, 0.02, Drafter(LEARNED, 0.9, 1.0, UNIT / 20, UNIT / 20)).speed_up() > 2.0


def test_of_two_drafters_the_better_one_is_used() -> None:
    suffix = Drafter(SUFFIX, 0.6, 0.2, 0.00005, 0.0)
    learned = Drafter(LEARNED, 0.8, 1.0, UNIT / 20, UNIT / 40)
    both = run(1, 0.02, suffix, learned)
    assert both.speed_up() > 0.95 * run(1, 0.02, learned).speed_up()
    assert both.speed_up() > 1.2 * run(1, 0.02, suffix).speed_up()


def test_in_the_windows_of_the_control_nobody_is_drafted_for() -> None:
    made = world(2, 0.02, Drafter(LEARNED, 0.9, 1.0, UNIT / 20, UNIT / 20))
    windows = made.steering.policy.windows
    controls = 0
    for step in range(1, STEPS):
        reasons, before = {request.depth_reason for request in made.requests}, made.asked
        made.step()
        if windows.kind(step - 1) == "control":  # the first step is before the policy's first
            controls += 1
            assert made.asked == before
            assert reasons == {"control"}
    assert controls == pytest.approx(STEPS * windows.share, abs=windows.steps)


def test_a_request_that_copies_is_verified_in_a_cohort_for_which_drafting_does_not_pay() -> None:
    suffix = Drafter(SUFFIX, 0.1, 1.0, 0.00005, 0.0)
    made = world(6, 0.3, suffix)
    made.requests[0].drafters = [Drafter(SUFFIX, 1.0, 1.0, 0.00005, 0.0)]
    for _ in range(STEPS):
        made.step()
    others = max(request.length for request in made.requests[1:])
    assert made.requests[0].length > 1.5 * others
    assert made.speed_up() > 1.02
