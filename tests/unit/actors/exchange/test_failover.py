"""Drafters that die, leave or come back; sessions move and the text does not change."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import pytest
import torch

from actors.exchange.compat import Compat
from actors.exchange.limits import Limits
from actors.exchange.link import Endpoint
from actors.exchange.pool import RemotePort
from actors.exchange.server import DraftingServer
from tests.unit.actors.exchange.helpers import (
    STEP_S,
    Engine,
    ToyDrafter,
    View,
    assert_text_is_the_targets,
    continuation,
    make_views,
    ported,
    serving,
    step_until,
    tapped,
    wait_for,
)
from tests.unit.actors.exchange.processes import drafter_process


def test_a_killed_drafters_sessions_open_elsewhere_and_drafts_flow_again() -> None:
    survivor = ToyDrafter()
    with (
        drafter_process("d1") as victim,
        serving(survivor, "d0") as endpoint,
        ported(endpoint, victim.endpoint) as port,
    ):
        engine = Engine(port)
        engine.start(*make_views(8))
        for _ in range(3):
            assert engine.step().missing == {}
        homes = {r.drafter: r.sessions for r in port.status()}
        assert homes["d1"] > 0
        assert {r.drafter: r.pid for r in port.status()}["d1"] == victim.pid
        epochs = {k.request: k.epoch for k in survivor.tokens}
        victim.kill()
        began = time.monotonic()
        while port.status()[1].up:
            engine.step()
        assert engine.step().waited_s < STEP_S
        assert engine.step().missing == {}
        assert time.monotonic() - began < 2 * STEP_S
        assert len(survivor.tokens) == 8
        moved = [k for k in survivor.tokens if k.request not in epochs]
        assert min(k.epoch for k in moved) > max(epochs.values())
        assert_text_is_the_targets(engine)
        assert port.status()[1].state == "down"
        engine.stop()
        assert survivor.wait_empty()


def test_a_drafter_that_comes_back_at_its_address_is_used_again() -> None:
    first, second = ToyDrafter(), ToyDrafter()
    server = DraftingServer(first, name="d0")
    number = server.start()
    with ported(Endpoint("d0", f"127.0.0.1:{number}")) as port:
        engine = Engine(port)
        engine.start(*make_views(2))
        assert engine.step().missing == {}
        server.stop(0.2)
        wait_for(lambda: not port.status()[0].up)
        engine.gather()  # blocks that had come before are still good
        step_until(engine, lambda: set(engine.gather().missing.values()) == {"no-drafter"})
        again = DraftingServer(second, name="d0")
        again.start(port=number)
        wait_for(lambda: port.status()[0].up)
        engine.step()
        assert engine.step().missing == {}
        assert len(second.tokens) == 2
        assert_text_is_the_targets(engine)
        again.stop(0.2)


def test_sessions_move_when_their_drafter_is_withdrawn_and_others_stay() -> None:
    a, b = ToyDrafter(), ToyDrafter()
    with serving(a, "a") as ea, serving(b, "b") as eb, ported(ea, eb) as port:
        engine = Engine(port)
        engine.start(*make_views(12))
        assert engine.step().missing == {}
        stayed = set(b.tokens)
        assert 0 < len(stayed) < 12
        port.set_endpoints([eb])
        assert a.wait_empty()
        engine.step()
        assert engine.step().missing == {}
        assert stayed < set(b.tokens)
        assert len(b.tokens) == 12
        assert [r.drafter for r in port.status()] == ["b"]


def test_many_verifiers_share_many_drafters_and_never_meet() -> None:
    drafters = [ToyDrafter() for _ in range(3)]
    with (
        serving(drafters[0], "d0") as e0,
        serving(drafters[1], "d1") as e1,
        serving(drafters[2], "d2") as e2,
        ported(e0, e1, e2, verifier="v0") as p0,
        ported(e0, e1, e2, verifier="v1") as p1,
    ):
        engines = [Engine(p0), Engine(p1)]
        for engine in engines:
            engine.start(*make_views(24))  # the same request ids on both
        for _ in range(4):
            for engine in engines:
                assert engine.step().missing == {}
        for drafter in drafters:
            assert {k.verifier for k in drafter.tokens} == {"v0", "v1"}
        for verifier in ("v0", "v1"):
            load = Counter(
                i for i, d in enumerate(drafters) for k in d.tokens if k.verifier == verifier
            )
            assert sum(load.values()) == 24
            assert max(load.values()) <= 10  # 1.25 times the mean of 8
        for engine in engines:
            assert_text_is_the_targets(engine)
        engines[0].stop()
        wait_for(lambda: {k.verifier for d in drafters for k in d.tokens} == {"v1"})
        assert engines[1].step().missing == {}


def test_a_full_drafter_is_a_reason_and_the_next_one_takes_over() -> None:
    small, large = ToyDrafter(), ToyDrafter()
    with serving(small, "small", limits=Limits(max_sessions=1)) as es, ported(es) as port:
        engine = Engine(port)
        engine.start(*make_views(2))
        gathered = engine.step()
        assert list(gathered.missing.values()) == ["overloaded"]
        with serving(large, "large") as el:
            port.set_endpoints([es, el])
            wait_for(lambda: all(r.up for r in port.status()))
            engine.step()
            assert engine.step().missing == {}
            assert (len(small.tokens), len(large.tokens)) == (1, 1)


def test_a_refused_link_says_which_field_differs() -> None:
    with (
        serving(ToyDrafter(), compat=Compat(tokenizer="theirs")) as endpoint,
        ported(endpoint, wait=False, compat=Compat(tokenizer="ours")) as port,
    ):
        wait_for(lambda: port.status()[0].state == "refused")
        record = port.status()[0]
        assert not record.up
        assert "FAILED_PRECONDITION: tokenizer: " in record.detail
        engine = Engine(port)
        engine.start(*make_views(1))
        assert engine.step().missing == {"r0": "no-drafter"}


def test_an_unreachable_drafter_never_blocks_the_engine() -> None:
    with ported(Endpoint("d0", "127.0.0.1:1"), wait=False) as port:
        engine = Engine(port)
        began = time.perf_counter()
        engine.start(*make_views(50))
        for _ in range(20):
            assert set(engine.step().missing.values()) == {"no-drafter"}
        assert time.perf_counter() - began < 1.0
        wait_for(lambda: "UNAVAILABLE" in port.status()[0].detail)


def test_the_port_of_no_drafters_says_so_to_the_end() -> None:
    port = RemotePort("v0")
    engine = Engine(port)
    engine.start(*make_views(1))
    port.shutdown()
    port.set_endpoints([Endpoint("d0", "127.0.0.1:1")])
    assert port.status() == []
    assert engine.step().missing == {"r0": "no-drafter"}


def test_features_that_a_view_has_not_got_leave_the_session_cold_until_it_has() -> None:
    class Slow(View):
        ready = False

        def features(self, from_row: int, to_row: int) -> torch.Tensor | None:
            return super().features(from_row, to_row) if self.ready else None

    now = [0.0]
    drafter = ToyDrafter(taps=(1,))
    with (
        serving(drafter) as endpoint,
        ported(endpoint, compat=tapped((1,)), clock=lambda: now[0]) as port,
    ):
        engine = Engine(port)
        view = Slow("r", [1, 2, 3], rows=torch.randn(256, 4).bfloat16())
        engine.start(view)
        assert engine.step().missing == {"r": "cold"}
        view.ready = True
        now[0] += 2.0
        step_until(engine, lambda: not engine.gather().missing)
        (rows,) = drafter.rows.values()
        assert view.rows is not None
        got = torch.cat(rows)
        assert torch.equal(got, view.rows[: got.shape[0]])


def test_a_drafter_lost_half_way_is_reseeded_from_tokens_and_features() -> None:
    a, b = ToyDrafter(taps=(1,)), ToyDrafter(taps=(1,))
    views: Sequence[View] = [
        View(f"r{i}", [i + 1, 2, 3], rows=torch.randn(512, 4).bfloat16()) for i in range(6)
    ]
    with (
        serving(a, "a") as ea,
        serving(b, "b") as eb,
        ported(ea, eb, compat=tapped((1,))) as port,
    ):
        engine = Engine(port)
        engine.start(*views)
        step_until(engine, lambda: len(engine.gather().drafts) == 6)
        port.set_endpoints([eb])
        step_until(engine, lambda: len(b.tokens) == 6 and not engine.gather().missing)
        for key, rows in b.rows.items():
            view = engine.views[key.request]
            assert view.rows is not None
            got = torch.cat(rows)
            assert torch.equal(got, view.rows[: got.shape[0]])
        assert_text_is_the_targets(engine)


def test_a_bug_in_the_port_costs_a_connection_and_not_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drafter = ToyDrafter()
    with serving(drafter) as endpoint, ported(endpoint) as port:
        engine = Engine(port)
        engine.start(*make_views(2))
        assert engine.step().missing == {}
        with monkeypatch.context() as patch:
            patch.setattr(port, "_blocks", None)
            engine.commit({"r0": continuation(engine.views["r0"].tokens, 1)})
            wait_for(lambda: "TypeError" in port.status()[0].detail)
        step_until(engine, lambda: not engine.step().missing)
        assert_text_is_the_targets(engine)
