"""Many drafters, many verifiers, and everything that goes wrong between them."""

from __future__ import annotations

import ast
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from actors.contracts import Commit, OpenSession, Proposal, SessionKey
from actors.exchange.compat import Compat
from actors.exchange.gathering import Patience
from actors.exchange.limits import Limits
from actors.exchange.link import Endpoint
from actors.exchange.outgoing import Outgoing
from actors.exchange.pool import PortOptions, RemotePort
from actors.exchange.server import DraftingServer
from pilotfish.v1 import exchange_pb2 as pb
from policies.breaker import ISOLATE_S
from tests.drafters.failing import FailingDrafter
from tests.unit.actors.exchange.helpers import (
    GREEDY,
    STEP_S,
    Engine,
    ToyDrafter,
    View,
    continuation,
    next_token,
    ported,
    serving,
    tapped,
    wait_for,
)
from tests.unit.actors.exchange.processes import drafter_process

NO_WAIT = PortOptions(patience=Patience(fixed_wait_s=0.0))


def make_views(count: int) -> list[View]:
    return [View(f"r{i}", [i, i + 1]) for i in range(count)]


def assert_text_is_the_targets(engine: Engine) -> None:
    for view in engine.views.values():
        prompt, text = view.tokens[: view.prompt_len], view.tokens[view.prompt_len :]
        assert tuple(text) == continuation(prompt, len(text))


def step_until(engine: Engine, condition: Any, seconds: float = 15.0) -> None:
    deadline_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline_s, "it never became true"
        engine.step()
        time.sleep(0.005)


# ---------------------------------------------------------------------------------- loss


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


# ---------------------------------------------------------------------------------- failures


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
        engine.step_s = 0.001
        reasons = []
        for _ in range(12):
            now[0] += 0.2
            reasons.append(set(engine.step().missing.values()))
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


def test_a_process_that_stops_answering_costs_a_bounded_wait() -> None:
    """Silent but connected: no step waits longer than its worth, and soon not at all."""
    with drafter_process("d0") as frozen:
        options = PortOptions(patience=Patience(least_s=0.05, first_s=0.1))
        with ported(frozen.endpoint, options=options) as port:
            engine = Engine(port, step_s=0.05)
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


# ---------------------------------------------------------------------------------- waiting


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
        engine = Engine(port, step_s=0.002)
        engine.start(*make_views(1))
        waits = [engine.step().waited_s]
        for _ in range(40):
            time.sleep(0.002)  # the step itself
            waits.append(engine.step().waited_s)
        assert max(waits) < 0.02
        assert_text_is_the_targets(engine)


# ---------------------------------------------------------------------------------- bounds


KEYS = [SessionKey("v", f"r{i}", 1) for i in range(3)]


def commit(key: SessionKey, from_len: int, rows: int = 1) -> Commit:
    features = torch.full((rows, 8), float(from_len)).bfloat16()
    return Commit(key, from_len, from_len, (from_len,) * rows, features, 4)


def test_pending_commits_coalesce_to_one_a_session() -> None:
    out = Outgoing()
    for i in range(100):
        for key in KEYS:
            out.commit(commit(key, 5 + i))
    frames = out.round_frames()
    frame = next(frames)
    assert [c.key.request for c in frame.commits] == ["r0", "r1", "r2"]
    for c in frame.commits:
        assert (c.from_len, len(c.tokens), c.round, c.depth) == (5, 100, 104, 4)
        assert list(c.features.shape) == [100, 8]
    assert out.feature_bytes == 0


def test_a_session_closed_before_it_was_sent_is_never_mentioned() -> None:
    out = Outgoing()
    for key in KEYS:
        out.open(OpenSession(key, (1, 2), GREEDY), follow=True, traceparent="")
        out.features(key, torch.zeros(1, 8).bfloat16())
        out.commit(commit(key, 2))
    out.close(KEYS[1], "abort")
    frame = next(out.round_frames())
    assert [o.key.request for o in frame.opens] == ["r0", "r2"]
    assert [c.key.request for c in frame.commits] == ["r0", "r2"]
    assert list(frame.closes) == []
    assert frame.ping_ns


def test_features_wait_for_the_pong_of_their_open() -> None:
    out = Outgoing()
    out.open(OpenSession(KEYS[0], (1, 2), GREEDY), follow=True, traceparent="")
    out.features(KEYS[0], torch.zeros(1, 8).bfloat16())
    assert out._released() is None
    frame = next(out.round_frames())
    assert out._released() is None
    out.pong(frame.ping_ns - 1)
    assert out._released() is None
    out.pong(frame.ping_ns)
    assert out._released() == KEYS[0]
    # Features that come after the Open has left wait for the newest ping that has gone out.
    out.features(KEYS[0], torch.zeros(1, 8).bfloat16())
    assert out._released() == KEYS[0]


def test_a_peer_that_reads_nothing_is_given_up_before_memory_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("actors.exchange.outgoing.MAX_CLOSES", 10)
    out = Outgoing()
    for i in range(12):
        out.close(SessionKey("v", f"r{i}", 1), "stop")
    assert out.ended
    assert list(out.round_frames()) == []


def test_over_the_high_water_mark_the_coldest_sessions_lose_their_features() -> None:
    drafter = ToyDrafter(taps=(1,))
    rows = torch.zeros(64, 512).bfloat16()
    options = PortOptions(high_water_bytes=40 * 1024, patience=Patience(fixed_wait_s=0.0))
    with (
        serving(drafter) as endpoint,
        ported(endpoint, compat=tapped((1,)), options=options) as port,
    ):
        link = port._homes["d0"].link
        stalled = Outgoing()  # nobody takes from it: a peer that reads nothing
        live, link._out = link._out, stalled
        engine = Engine(port)
        engine.start(*[View(f"r{i}", [1], rows=rows) for i in range(8)])  # 1 KiB each
        assert port.status()[0].sessions == 8
        for count in range(1, 7):
            engine.commit({f"r{i}": (5,) * 4 for i in range(count)})
            assert link.feature_bytes <= options.high_water_bytes
        homeless = {r for r, s in port._sessions.items() if s.home is None}
        # r7 and r6 have spoken least lately, and theirs are the first features to go.
        assert homeless >= {"r7", "r6"}
        assert len(homeless) < 8
        assert set(engine.gather().missing.values()) == {"cold"}
        late = View("late", [1] * 8, rows=rows)  # no room for a new prefill either
        engine.start(late)
        assert port._sessions["late"].reason == "cold"
        link._out = live


def test_a_port_of_many_sessions_and_a_stalled_peer_keeps_one_commit_each() -> None:
    drafter = ToyDrafter()
    with serving(drafter) as endpoint, ported(endpoint, options=NO_WAIT) as port:
        engine = Engine(port)
        engine.start(*make_views(3))
        link = port._homes["d0"].link
        live, stalled = link._out, Outgoing()
        link._out = stalled
        for _ in range(50):
            engine.step()
        assert len(stalled.commits) == 3
        link._out = live


# ---------------------------------------------------------------------------------- processes


def _one_rpc(address: str) -> None:
    from pilotfish.v1 import exchange_pb2_grpc

    with grpc.insecure_channel(address) as channel:
        stub = exchange_pb2_grpc.DraftingStub(channel)
        assert stub.Describe(pb.DescribeRequest(), timeout=20).mechanism == "toy"


def test_a_spawned_child_speaks_grpc_while_the_parents_is_live() -> None:
    """R08."""
    with serving(ToyDrafter()) as endpoint, ported(endpoint):
        context = multiprocessing.get_context("spawn")
        child = context.Process(target=_one_rpc, args=(endpoint.address,))
        child.start()
        child.join(60)
        assert child.exitcode == 0


def test_no_process_of_ours_is_made_by_fork() -> None:
    """R08's guard: multiprocessing is used through a spawn context only, and os.fork never."""
    root = Path(__file__).parents[4]
    calls: list[str] = []
    for package in ("actors", "cluster", "pilotfish", "policies"):
        for file in (root / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and node.attr in ("fork", "forkpty"):
                    calls.append(f"{file.name}:{node.lineno} {node.attr}")
                if isinstance(node, ast.Call) and _is_forking(node):
                    calls.append(f"{file.name}:{node.lineno} {ast.unparse(node)}")
    assert calls == []


def _is_forking(node: ast.Call) -> bool:
    name = ast.unparse(node.func)
    if name.endswith(("get_context", "set_start_method")):
        return [ast.unparse(a) for a in node.args] != ["'spawn'"]
    return name in ("multiprocessing.Process", "mp.Process", "multiprocessing.Pool", "mp.Pool")


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
