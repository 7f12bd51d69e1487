"""The co-located port: the same contract without a wire."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from actors.contracts import Proposal
from actors.exchange.local import LocalPort
from policies.breaker import ISOLATE_S
from tests.drafters.failing import FailingDrafter
from tests.unit.actors.exchange.helpers import (
    Engine,
    ToyDrafter,
    View,
    continuation,
    next_token,
)


def assert_text_is_the_targets(engine: Engine) -> None:
    for view in engine.views.values():
        prompt, text = view.tokens[: view.prompt_len], view.tokens[view.prompt_len :]
        assert tuple(text) == continuation(prompt, len(text))


def test_a_drafter_that_knows_the_target_is_always_right() -> None:
    engine = Engine(LocalPort(ToyDrafter()))
    engine.start(*[View(f"r{i}", [i]) for i in range(5)])
    for _ in range(6):
        assert engine.step().missing == {}
    assert engine.accepted == engine.drafted == 5 * 4 * 6
    assert_text_is_the_targets(engine)


def test_features_reach_a_co_located_drafter_row_for_row() -> None:
    drafter = ToyDrafter(taps=(1, 2))
    port = LocalPort(drafter)
    assert port.taps == (1, 2)
    engine = Engine(port)
    view = View("r", [1, 2, 3], rows=torch.randn(64, 8).bfloat16())
    engine.start(view)
    for _ in range(3):
        assert engine.step().missing == {}
    (rows,) = drafter.rows.values()
    assert view.rows is not None
    assert torch.equal(torch.cat(rows), view.rows[: len(view.tokens) - 1])


def test_without_features_a_drafter_that_needs_them_stays_cold() -> None:
    engine = Engine(LocalPort(ToyDrafter(taps=(1,))))
    engine.start(View("r", [1, 2]))
    for _ in range(3):
        assert engine.step().missing == {"r": "cold"}


def test_a_drafter_that_still_reads_the_prompt_is_cold_and_one_without_a_guess_is_not() -> None:
    drafter = ToyDrafter()
    engine = Engine(LocalPort(drafter))
    engine.start(View("r", [1, 2]))
    for cold, reason in ((True, "cold"), (False, "empty")):
        drafter.spoil = lambda ps, c=cold: [replace(p, tokens=(), cold=c) for p in ps]
        assert engine.step().missing == {"r": reason}


@pytest.mark.parametrize("mode", ["raise", "session", "nan", "range", "length", "base", "missing"])
def test_a_drafter_that_fails_costs_its_drafts_and_comes_back(mode: Any) -> None:
    """S51: round 2 of 4 requests."""
    now = [0.0]
    drafter = FailingDrafter(mode, 2, 97, next_token=lambda prefix, _: next_token(prefix))
    port = LocalPort(drafter, clock=lambda: now[0])
    engine = Engine(port)
    engine.start(*[View(f"r{i}", [i]) for i in range(4)])
    assert engine.step().missing == {}
    failed = engine.step()
    assert set(failed.missing.values()) <= {"fault"}
    assert engine.step().missing.keys() == failed.missing.keys()
    now[0] += 1.0
    engine.step()
    assert engine.step().missing == {}
    assert_text_is_the_targets(engine)
    if failed.missing:
        assert port.status()[0].faults == {"FAULT_INTERNAL": len(failed.missing)}


def test_a_drafter_that_only_fails_is_isolated_and_probed() -> None:
    now = [0.0]
    drafter = ToyDrafter()
    good = drafter.spoil

    def boom(proposals: list[Proposal]) -> list[Proposal]:
        raise RuntimeError("boom")

    drafter.spoil = boom
    port = LocalPort(drafter, clock=lambda: now[0])
    engine = Engine(port)
    engine.start(View("a", [1]), View("b", [2]))
    for _ in range(8):
        now[0] += 1.0
        engine.step()
    assert port.status()[0].state == "isolated"
    assert set(engine.step().missing.values()) == {"isolated"}
    assert drafter.tokens == {}
    drafter.spoil = good
    now[0] += ISOLATE_S
    engine.step()
    assert len(drafter.tokens) == 1  # half-open: one session
    engine.step()
    engine.step()
    assert engine.step().missing == {}
    assert port.status()[0].up


def test_depths_are_bounded_by_block_and_context() -> None:
    drafter = ToyDrafter(max_block=3, max_context=8)
    engine = Engine(LocalPort(drafter), depth=9)
    engine.start(View("r", [1, 2]))
    assert len(engine.step().drafts["r"].tokens) == 3
    assert len(engine.step().drafts["r"].tokens) == 1
    assert engine.step().missing == {"r": "context"}


def test_no_more_is_drafted_than_was_asked_for() -> None:
    """A token more may take a forward more, and it is not what the policy has priced."""
    port = LocalPort(ToyDrafter())
    engine = Engine(port, depth=2)
    engine.start(View("r", [1, 2]))
    may = {"r": 8}
    assert len(port.gather(may, {}).drafts["r"].tokens) == 2
    engine.depth = 5
    engine.commit({"r": (3,)})
    assert len(port.gather(may, {}).drafts["r"].tokens) == 5
    assert len(port.gather({"r": 3}, {}).drafts["r"].tokens) == 3  # and no more than may be used


def test_a_view_that_raises_costs_drafts_and_nothing_else() -> None:
    class Broken(View):
        def features(self, from_row: int, to_row: int) -> torch.Tensor | None:
            if to_row - from_row > 1:
                raise RuntimeError("broken")
            return torch.zeros(to_row - from_row, 4).bfloat16()

    engine = Engine(LocalPort(ToyDrafter(taps=(1,))))
    engine.start(Broken("r", [1, 2, 3]))
    assert set(engine.step().missing) == {"r"}


def test_a_thousand_random_opens_and_aborts_leave_nothing() -> None:
    dice = random.Random(5)
    drafter = ToyDrafter()
    port = LocalPort(drafter)
    engine = Engine(port)
    for number in range(1000):
        engine.start(View(f"r{number % 40}", [number % 97]))
        if dice.random() < 0.2:
            engine.step()
        while engine.views and dice.random() < 0.6:
            engine.stop(dice.choice(list(engine.views)))
    port.shutdown()
    assert drafter.tokens == {}
    assert port._sessions == {}
