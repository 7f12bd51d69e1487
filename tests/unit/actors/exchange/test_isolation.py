"""Drafters that fail, hang or forget; what it costs is bounded by the clock."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from actors.contracts import Proposal
from actors.exchange.gathering import Patience
from actors.exchange.pool import PortOptions
from pilotfish.v1 import exchange_pb2 as pb
from policies.breaker import ISOLATE_S
from tests.drafters.failing import FailingDrafter
from tests.unit.actors.exchange.helpers import (
    STEP_S,
    Engine,
    ToyDrafter,
    View,
    assert_text_is_the_targets,
    continuation,
    make_views,
    next_token,
    ported,
    serving,
    step_until,
    wait_for,
)
from tests.unit.actors.exchange.processes import drafter_process

NO_WAIT = PortOptions(patience=Patience(fixed_wait_s=0.0))


@pytest.mark.parametrize("mode", ["raise", "session", "nan", "range", "length", "base", "missing"])
def test_a_remote_drafter_that_fails_costs_its_drafts_and_comes_back(mode: Any) -> None:
    """S51 over the wire: round 2 of 4 requests."""
    drafter = FailingDrafter(mode, 2, 97, next_token=lambda prefix, _: next_token(prefix))
    with serving(drafter) as endpoint, ported(endpoint) as port:
        engine = Engine(port)
        engine.start(*make_views(4))
        step_until(engine, lambda: drafter.failures > 0)
        step_until(engine, lambda: not engine.step().missing)
        assert_text_is_the_targets(engine)
        assert sum(port.status()[0].faults.values()) <= 4
        assert port.status()[0].up


def test_a_drafter_that_hangs_is_contained_by_the_clock() -> None:
    """S51(e): every step goes on; the drafter is isolated, then probed with one session."""
    now = [0.0]
    drafter = ToyDrafter()
    gate, hung = threading.Event(), threading.Event()
    gate.set()

    def maybe_hang(proposals: list[Proposal]) -> list[Proposal]:
        if not gate.is_set():
            hung.set()
        gate.wait(20)
        return proposals

    drafter.spoil = maybe_hang
    with (
        serving(drafter) as endpoint,
        ported(endpoint, options=PortOptions(), clock=lambda: now[0]) as port,
    ):
        engine = Engine(port)
        engine.start(*make_views(4))
        step_until(engine, lambda: not engine.step().missing)
        gate.clear()
        engine.step()
        assert hung.wait(10)
        engine.worth_s = 0.001
        reasons = []
        for _ in range(12):
            now[0] += 0.2
            reasons.append(set(engine.step().missing.values()))
            record = port.status()[0]
            # Whoever lived there has left by the end of the very step that isolates it.
            assert record.state == "up" or record.sessions == 0
        assert reasons[-1] == {"isolated"}
        assert {"late"} in reasons
        assert port.status()[0].state == "isolated"
        assert port.status()[0].sessions == 0

        now[0] += ISOLATE_S  # half-open: one session probes, the others rest
        engine.step()
        assert port.status()[0].sessions == 1
        for _ in range(60):
            now[0] += 0.2
            engine.step()
        assert port.status()[0].state == "isolated"  # the probe was silent as well
        assert port.status()[0].sessions == 0

        gate.set()
        now[0] += 2 * ISOLATE_S + 1.0
        step_until(engine, lambda: not engine.step().missing)
        assert port.status()[0].state == "up"
        assert_text_is_the_targets(engine)
        engine.stop()
        assert drafter.wait_empty()


def test_a_drafter_that_hangs_is_contained_however_short_the_requests_are() -> None:
    """One client, one request after the other, none as long as the patience for a first block."""
    now = [0.0]
    drafter = ToyDrafter()
    gate = threading.Event()
    drafter.spoil = lambda proposals: (gate.wait(20), proposals)[1]
    with (
        serving(drafter) as endpoint,
        ported(endpoint, options=PortOptions(), clock=lambda: now[0]) as port,
    ):
        engine = Engine(port, worth_s=0.001)
        for i in range(12):
            engine.start(View(f"r{i}", [i, i + 1]))
            for _ in range(3):
                now[0] += 0.25
                engine.step()
            engine.stop()
        assert port.status()[0].state == "isolated"
        gate.set()


def test_a_process_that_stops_answering_costs_a_bounded_wait() -> None:
    """Silent but connected: no step waits longer than its worth, and soon not at all."""
    with drafter_process("d0") as frozen:
        options = PortOptions(patience=Patience(least_s=0.05, first_s=0.1))
        with ported(frozen.endpoint, options=options) as port:
            engine = Engine(port, worth_s=0.025)  # for each of two
            engine.start(*make_views(2))
            step_until(engine, lambda: not engine.step().missing)
            frozen.pause()
            waits = [engine.step().waited_s for _ in range(40)]
            assert max(waits) < 2 * 0.05
            assert sum(waits) < 1.0
            assert engine.gather().waited_s < 0.01
            frozen.resume()


def test_a_session_that_alone_gets_no_blocks_is_opened_again() -> None:
    now = [0.0]
    drafter = ToyDrafter()
    with serving(drafter) as endpoint, ported(endpoint, clock=lambda: now[0]) as port:
        deliver = port.on_frame

        def lossy(link: Any, frame: pb.DrafterFrame) -> None:
            kept = [b for b in frame.blocks if b.key.request != "r1" or b.key.epoch > 2]
            del frame.blocks[:]
            frame.blocks.extend(kept)
            deliver(link, frame)

        port.on_frame = lossy  # type: ignore[method-assign]
        engine = Engine(port)
        engine.start(*make_views(2))
        first = port._sessions["r1"].key
        assert first is not None
        assert first.epoch <= 2
        port._options = NO_WAIT

        def reopened() -> bool:
            now[0] += 3.0
            key = port._sessions["r1"].key
            return key is not None and key.epoch > first.epoch

        step_until(engine, reopened)
        other = port._sessions["r0"].key
        assert other is not None
        assert other.epoch <= 2  # the other session stayed
        port._options = PortOptions(patience=Patience(fixed_wait_s=STEP_S))
        assert engine.step().missing == {}


def test_a_session_the_drafter_lost_is_opened_again_with_the_next_commit() -> None:
    drafter = ToyDrafter()
    now = [0.0]
    with serving(drafter, idle_s=60.0, clock=lambda: now[0]) as endpoint, ported(endpoint) as port:
        engine = Engine(port)
        engine.start(*make_views(2))
        assert engine.step().missing == {}
        wait_for(lambda: all(s.answered >= s.asked for s in port._sessions.values()))
        now[0] = 100.0
        engine.commit({"r0": continuation(engine.views["r0"].tokens, 1)})
        wait_for(lambda: port.status()[0].faults.get("FAULT_EVICTED", 0) > 0)
        step_until(engine, lambda: not engine.step().missing)
        assert_text_is_the_targets(engine)


def test_a_block_that_arrives_ends_the_wait_at_once() -> None:
    drafter = ToyDrafter()
    drafter.spoil = lambda proposals: (time.sleep(0.05), proposals)[1]
    with serving(drafter) as endpoint, ported(endpoint, options=PortOptions()) as port:
        engine = Engine(port)  # worth more than four seconds
        engine.start(*make_views(1))
        gathered = engine.step()
        assert gathered.missing == {}
        assert 0.02 < gathered.waited_s < 1.0


def test_the_wait_follows_live_arrivals_and_not_a_constant() -> None:
    """A drafter slower than its block is worth is not waited for; its tails are used."""
    drafter = ToyDrafter()
    drafter.spoil = lambda proposals: (time.sleep(0.03), proposals)[1]
    with serving(drafter) as endpoint, ported(endpoint, options=PortOptions()) as port:
        engine = Engine(port, worth_s=0.002)
        engine.start(*make_views(1))
        waits = [engine.step().waited_s]
        for _ in range(40):
            time.sleep(0.002)  # the step itself
            waits.append(engine.step().waited_s)
        assert max(waits) < 0.02
        assert_text_is_the_targets(engine)
