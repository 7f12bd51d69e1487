"""What waits for a slow drafter is coalesced and bounded."""

from __future__ import annotations

import pytest
import torch

from actors.contracts import Commit, OpenSession, SessionKey
from actors.exchange.gathering import Patience
from actors.exchange.outgoing import Outgoing
from actors.exchange.pool import PortOptions
from tests.unit.actors.exchange.helpers import (
    GREEDY,
    Engine,
    ToyDrafter,
    View,
    make_views,
    ported,
    serving,
    tapped,
)

NO_WAIT = PortOptions(patience=Patience(fixed_wait_s=0.0))


KEYS = [SessionKey("v", f"r{i}", 1) for i in range(3)]


def commit(key: SessionKey, from_len: int, rows: int = 1) -> Commit:
    features = torch.full((rows, 8), float(from_len)).bfloat16()
    return Commit(key, from_len, from_len, (from_len,) * rows, features, 4)


def test_pending_commits_coalesce_to_one_a_session() -> None:
    out = Outgoing()
    for i in range(100):
        for key in KEYS:
            out.commit([commit(key, 5 + i)])
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
        out.open(OpenSession(key, (1, 2), GREEDY), follow=True, trace=("", ""))
        out.features(key, torch.zeros(1, 8).bfloat16())
        out.commit([commit(key, 2)])
    out.close(KEYS[1], "abort")
    frame = next(out.round_frames())
    assert [o.key.request for o in frame.opens] == ["r0", "r2"]
    assert [c.key.request for c in frame.commits] == ["r0", "r2"]
    assert list(frame.closes) == []
    assert frame.ping_ns


def test_features_wait_for_the_pong_of_their_open() -> None:
    out = Outgoing()
    out.open(OpenSession(KEYS[0], (1, 2), GREEDY), follow=True, trace=("", ""))
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
