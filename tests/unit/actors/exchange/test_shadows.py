"""Evidence from a port of one arm: drafted and never verified, never waited for, all of it told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from actors.contracts import Gathered, PortCommit, Proposal
from actors.exchange.local import LocalPort
from actors.exchange.pool import PortOptions, RemotePort
from policies.choice import Arm
from tests.unit.actors.exchange.helpers import (
    ToyDrafter,
    View,
    continuation,
    ported,
    serving,
    wait_for,
)

HERE, THERE = Arm("toy", False, 16), Arm("toy", True, 16)


def tell(
    port: LocalPort | RemotePort, view: View, round: int, depth: int = 0, shadow: int = 0
) -> None:
    """A round at D = 0 that commits one token, with so much asked as evidence."""
    start = len(view.tokens)
    tokens = continuation(view.tokens, 1)
    view.tokens.extend(tokens)
    asked = (HERE, shadow) if shadow else None
    port.commit([PortCommit(view.request_id, round, start, tokens, depth, shadow=asked)])


def nothing(proposals: list[Proposal]) -> list[Proposal]:
    return [replace(p, tokens=()) for p in proposals]


def wrong(proposals: list[Proposal]) -> list[Proposal]:
    return [replace(p, tokens=tuple((t + 1) % 97 for t in p.tokens)) for p in proposals]


def until(port: RemotePort, seen: Callable[[Gathered], object]) -> Gathered:
    """Steps that want nothing, until one sees what has come."""
    found = [Gathered()]

    def step() -> bool:
        found[0] = port.gather({}, {})
        return bool(seen(found[0]))

    wait_for(step)
    return found[0]


def answered(port: RemotePort) -> None:
    wait_for(lambda: port.status()[0].blocks_answered == 1)


def test_evidence_is_drafted_here_in_the_next_step_once_and_is_no_draft() -> None:
    drafter = ToyDrafter()
    port, view = LocalPort(drafter), View("r", [1, 2])
    port.open(view)
    tell(port, view, 1, shadow=3)
    gathered = port.gather({}, {})
    arm, draft = gathered.shadows["r"]
    assert (arm, draft.tokens, draft.remote) == (HERE, continuation(view.tokens, 3), False)
    assert gathered.drafts == {}
    assert gathered.missing == {}
    assert port.gather({}, {}).shadows == {}
    assert port.status()[0].blocks_used == 0
    assert port.status()[0].blocks_answered == 1
    assert drafter.batches == [1]


def test_a_block_that_is_wanted_after_all_is_a_draft() -> None:
    port, view = LocalPort(ToyDrafter()), View("r", [1, 2])
    port.open(view)
    tell(port, view, 1, shadow=3)
    gathered = port.gather({"r": 2}, {})
    assert gathered.drafts["r"].tokens == continuation(view.tokens, 2)
    assert gathered.shadows == {}
    assert port.gather({}, {}).shadows == {}


def test_evidence_of_others_is_no_part_of_what_a_block_took() -> None:
    """They are drafted apart, the blocks first."""
    drafter = ToyDrafter()
    port, views = LocalPort(drafter), [View("a", [1, 2]), View("b", [3, 4]), View("c", [5, 6])]
    for view, shadow in zip(views, (0, 0, 2), strict=True):
        port.open(view)
        tell(port, view, 1, depth=0 if shadow else 4, shadow=shadow)
    gathered = port.gather({"a": 4, "b": 4}, {})
    assert drafter.batches == [2, 1]
    assert set(gathered.drafts) == {"a", "b"}
    assert set(gathered.shadows) == {"c"}


def test_that_nothing_was_proposed_is_evidence_too() -> None:
    drafter = ToyDrafter()
    drafter.spoil = nothing
    port, view = LocalPort(drafter), View("r", [1, 2])
    port.open(view)
    tell(port, view, 1, shadow=3)
    assert port.gather({}, {}).judged == {"r": (HERE, 0, 0)}


@pytest.mark.parametrize("cold", [True, False])
def test_a_drafter_that_reads_the_prompt_or_fails_has_said_nothing(cold: bool) -> None:
    drafter = ToyDrafter()
    drafter.spoil = lambda proposals: [
        replace(p, tokens=(), cold=True) if cold else replace(p, base_len=0) for p in proposals
    ]
    port, view = LocalPort(drafter), View("r", [1, 2])
    port.open(view)
    tell(port, view, 1, shadow=3)
    gathered = port.gather({}, {})
    assert replace(gathered, waited_s=0.0) == Gathered()


def test_evidence_of_a_request_that_ended_is_not_drafted() -> None:
    drafter = ToyDrafter()
    port, view = LocalPort(drafter), View("r", [1, 2])
    port.open(view)
    tell(port, view, 1, shadow=3)
    port.close("r", "stop")
    assert replace(port.gather({}, {}), waited_s=0.0) == Gathered()
    assert drafter.batches == []


def test_a_drafter_here_that_rests_is_no_arm_until_it_may_be_tried_again() -> None:
    now = [0.0]
    drafter = ToyDrafter()
    port, view = LocalPort(drafter, clock=lambda: now[0]), View("r", [1, 2])
    assert list(port.arms) == [HERE]
    drafter.spoil = lambda proposals: []
    port.open(view)
    for round in range(12):
        now[0] += 1.0
        tell(port, view, round, depth=4)
        port.gather({"r": 4}, {})
        if not port.arms:
            break
    assert list(port.arms) == []
    now[0] += 1000.0
    assert list(port.arms) == [HERE]


def test_evidence_comes_over_the_wire_when_it_comes_and_is_no_draft() -> None:
    with serving(ToyDrafter()) as endpoint, ported(endpoint) as port:
        view = View("r", [1, 2])
        port.open(view)
        tell(port, view, 1, shadow=3)
        arm, draft = until(port, lambda g: g.shadows).shadows["r"]
        assert (arm, draft.tokens, draft.remote) == (THERE, continuation(view.tokens, 3), True)
        assert port.gather({}, {}) == Gathered()
        assert port.gather({"r": 3}, {}).drafts == {}  # what was scored is not verified as well
        record = port.status()[0]
        assert (record.blocks_used, record.blocks_late, record.blocks_answered) == (0, 0, 1)


def test_evidence_that_is_late_is_scored_from_where_it_was_asked() -> None:
    with serving(ToyDrafter()) as endpoint, ported(endpoint) as port:
        view = View("r", [1, 2])
        port.open(view)
        tell(port, view, 1, shadow=4)
        answered(port)
        tell(port, view, 2)
        draft = until(port, lambda g: g.shadows).shadows["r"][1]
        assert (draft.behind, draft.tokens) == (1, continuation(view.tokens, 3))


def test_evidence_that_was_overtaken_counts_with_what_was_right_of_it() -> None:
    drafter = ToyDrafter()
    drafter.spoil = wrong
    with serving(drafter) as endpoint, ported(endpoint) as port:
        view = View("r", [1, 2])
        port.open(view)
        tell(port, view, 1, shadow=4)
        answered(port)
        tell(port, view, 2)
        assert until(port, lambda g: g.judged).judged == {"r": (THERE, 4, 0)}


def test_that_nothing_was_proposed_is_evidence_over_the_wire_too() -> None:
    drafter = ToyDrafter()
    drafter.spoil = nothing
    with serving(drafter) as endpoint, ported(endpoint) as port:
        view = View("r", [1, 2])
        port.open(view)
        tell(port, view, 1, shadow=4)
        assert until(port, lambda g: g.judged).judged == {"r": (THERE, 0, 0)}


def test_evidence_is_not_forgotten_for_a_commit_that_asks_for_none() -> None:
    """The drafter is busy, and commits that wait for it are read as one."""
    drafter = ToyDrafter()
    busy, free = threading.Event(), threading.Event()

    def wait(proposals: list[Proposal]) -> list[Proposal]:
        busy.set()
        free.wait(20)
        return proposals

    drafter.spoil = wait
    with serving(drafter) as endpoint, ported(endpoint) as port:
        first, view = View("first", [3, 4]), View("r", [1, 2])
        for each in (first, view):
            port.open(each)
        tell(port, first, 1, depth=4)
        assert busy.wait(10)
        tell(port, view, 1, shadow=3)
        tell(port, view, 2)
        free.set()
        draft = until(port, lambda g: "r" in g.shadows).shadows["r"][1]
        assert draft.behind + len(draft.tokens) == 3


def test_a_drafter_that_owes_nothing_but_evidence_is_isolated_by_the_clock_too() -> None:
    now = [0.0]
    drafter = ToyDrafter()
    gate = threading.Event()
    drafter.spoil = lambda proposals: (gate.wait(20), proposals)[1]
    options = PortOptions()
    with (
        serving(drafter) as endpoint,
        ported(endpoint, options=options, clock=lambda: now[0]) as port,
    ):
        view = View("r", [1, 2])
        port.open(view)
        assert list(port.arms) == [THERE]
        tell(port, view, 1, shadow=3)
        for _ in range(40):
            now[0] += 0.25
            gathered = port.gather({}, {})
            assert gathered.waited_s == 0.0
            if list(port.arms) == []:
                break
        assert port.status()[0].state == "isolated"
        assert list(port.arms) == []
        gate.set()


def test_an_arm_over_the_wire_is_up_while_one_of_its_drafters_is() -> None:
    port = RemotePort("v0")
    assert list(port.arms) == []
    port.shutdown()
    with serving(ToyDrafter(max_block=6)) as endpoint, ported(endpoint) as port:
        assert list(port.arms) == [Arm("toy", True, 6)]
        port.set_endpoints([])
        assert list(port.arms) == []


def test_nothing_of_evidence_is_left_when_requests_end() -> None:
    """L3."""
    drafter = ToyDrafter()
    with serving(drafter) as endpoint, ported(endpoint) as port:
        for number in range(8):
            view = View(f"r{number}", [1, 2, 3])
            port.open(view)
            tell(port, view, 1, shadow=3)
            assert port._shadowed
            port.close(view.request_id, "abort")
        assert not port._shadowed
        assert drafter.wait_empty()
