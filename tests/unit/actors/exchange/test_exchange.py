"""Rounds over a real server on loopback."""

from __future__ import annotations

import math
import random
import threading
from dataclasses import replace

import pytest
import torch

from actors.contracts import Proposal
from actors.exchange import codec
from actors.exchange.gathering import Patience
from actors.exchange.limits import MAX_FRAME_BYTES
from actors.exchange.pool import PortOptions
from pilotfish.v1 import exchange_pb2 as pb
from tests.unit.actors.exchange.helpers import (
    Engine,
    ToyDrafter,
    View,
    continuation,
    ported,
    serving,
    step_until,
    tapped,
    wait_for,
)

IMPATIENT = PortOptions(patience=Patience(fixed_wait_s=0.0))


def make_views(count: int, rows: int = 0, columns: int = 6) -> list[View]:
    """Requests of different lengths, with random bf16 features of so many rows."""
    generator = torch.Generator().manual_seed(0)
    return [
        View(
            f"r{i}",
            [(7 * i + j) % 97 for j in range(1 + i % 5)],
            rows=torch.randn(rows, columns, generator=generator).bfloat16() if rows else None,
        )
        for i in range(count)
    ]


def test_a_drafter_that_knows_the_target_is_always_right_over_the_wire() -> None:
    drafter = ToyDrafter()
    with serving(drafter) as endpoint, ported(endpoint) as port:
        engine = Engine(port)
        engine.start(*make_views(5))
        for _ in range(6):
            assert engine.step().missing == {}
        assert engine.drafted == 5 * 4 * 6
        assert engine.accepted == engine.drafted
        for view in engine.views.values():
            prompt, text = view.tokens[: view.prompt_len], view.tokens[view.prompt_len :]
            assert tuple(text) == continuation(prompt, len(text))
        engine.stop()
        assert drafter.wait_empty()


def test_one_frame_and_one_call_carry_every_session() -> None:
    drafter = ToyDrafter()
    with serving(drafter) as endpoint, ported(endpoint) as port:
        engine = Engine(port)
        engine.start(*make_views(64))
        assert len(engine.step().drafts) == 64
        before = port.status()[0]
        drafter.batches.clear()
        for _ in range(5):
            assert len(engine.step().drafts) == 64
        after = port.status()[0]
        assert set(drafter.batches) == {64}
        # Five rounds, and at most a ping among them.
        assert after.frames_sent - before.frames_sent <= 6
        assert after.frames_received - before.frames_received <= 6


def test_features_arrive_bit_for_bit_and_row_for_row() -> None:
    drafter = ToyDrafter(taps=(1, 2, 3))
    views = make_views(4, rows=64, columns=6)
    views[0].tokens = [5]  # no row before the first commit
    with serving(drafter) as endpoint, ported(endpoint, compat=tapped((1, 2, 3))) as port:
        assert port.taps == (1, 2, 3)
        engine = Engine(port)
        engine.start(*views)
        wait_for(lambda: len(engine.gather().drafts) == len(views))
        for _ in range(4):
            engine.step()
        lengths = {v.request_id: len(v.tokens) for v in views}
        wait_for(lambda: {k.request: len(t) for k, t in drafter.tokens.items()} == lengths)
        for key, rows in drafter.rows.items():
            view = engine.views[key.request]
            got = torch.cat(rows)
            assert view.rows is not None
            # The newest token has no row yet: rows 0 … len-2, and none twice.
            assert got.dtype is torch.bfloat16
            want = view.rows[: len(view.tokens) - 1]
            assert torch.equal(got.view(torch.int16), want.view(torch.int16))
        engine.stop()
        assert drafter.wait_empty()


def test_a_long_prefill_crosses_in_many_frames_and_no_frame_is_over_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R03: 3 layers x 4096 x bf16 is 24,576 bytes a row; 171 rows pass gRPC's default of 4 MiB."""
    sizes: list[int] = []
    monkeypatch.setattr(
        "actors.exchange.stream.RoundStream.take_features",
        _measuring(sizes, "take_features"),
    )
    monkeypatch.setattr("actors.exchange.stream.RoundStream.take", _measuring(sizes, "take"))
    drafter = ToyDrafter(taps=(1, 2, 3))
    tokens = [i % 97 for i in range(172)]
    view = View("long", tokens, rows=torch.randn(400, 3 * 4096).bfloat16())
    with serving(drafter) as endpoint, ported(endpoint, compat=tapped((1, 2, 3))) as port:
        engine = Engine(port)
        engine.start(view)
        assert engine.gather().missing == {"long": "cold"}
        wait_for(lambda: len(engine.gather().drafts) == 1)
        assert sum(sizes) > 171 * 24_576
        assert max(sizes) <= MAX_FRAME_BYTES
        # A commit of many rows is split as well: 60 rows take 1.4 MiB.
        engine.commit({"long": continuation(view.tokens, 60)})
        assert engine.step().drafts["long"].tokens
        assert max(sizes) <= MAX_FRAME_BYTES
        (rows,) = drafter.rows.values()
        assert view.rows is not None
        got = torch.cat(rows)
        assert torch.equal(got, view.rows[: got.shape[0]])


def _measuring(sizes: list[int], name: str) -> object:
    from actors.exchange.stream import RoundStream

    original = getattr(RoundStream, name)

    def measured(stream: RoundStream, frame: object) -> None:
        sizes.append(frame.ByteSize())  # type: ignore[attr-defined]
        original(stream, frame)

    return measured


def test_commits_that_come_before_the_features_wait_for_them_in_order() -> None:
    drafter = ToyDrafter(taps=(1,))
    view = View("r", list(range(9)), rows=torch.randn(64, 4).bfloat16())
    with serving(drafter) as endpoint, ported(endpoint, compat=tapped((1,))) as port:
        engine = Engine(port, worth_s=0.0)
        engine.start(view)
        for _ in range(10):  # rounds go on without a block while the features are on their way
            engine.step()
        wait_for(lambda: len(engine.gather().drafts) == 1)
        assert len(drafter.opened) == 1
        # A draft may be the tail of a late block: the newest commit is then still on its way.
        wait_for(lambda: [len(t) for t in drafter.tokens.values()] == [len(view.tokens)])
        (rows,) = drafter.rows.values()
        assert view.rows is not None
        assert torch.equal(torch.cat(rows), view.rows[: len(view.tokens) - 1])


def test_the_still_matching_tail_of_a_late_block_is_used() -> None:
    drafter = ToyDrafter()
    gate = threading.Event()

    def held(proposals: list[Proposal]) -> list[Proposal]:
        gate.wait(10)
        return proposals

    drafter.spoil = held
    with serving(drafter) as endpoint, ported(endpoint, options=IMPATIENT) as port:
        engine = Engine(port)
        view = View("r", [3, 4])
        engine.start(view)
        wait_for(lambda: drafter.batches == [1])
        assert engine.gather().missing == {"r": "late"}
        base = list(view.tokens)
        session = port._sessions["r"]
        gate.set()
        wait_for(lambda: bool(session.blocks))
        view.tokens.extend(continuation(view.tokens, 1))  # the row ran alone in the meantime
        draft = engine.gather().drafts["r"]
        assert (draft.tokens, draft.behind) == (continuation(base, 4)[1:], 1)
        assert port.status()[0].blocks_late == 1


def test_a_late_block_on_other_tokens_is_dropped_and_counted() -> None:
    drafter = ToyDrafter()
    with serving(drafter) as endpoint, ported(endpoint) as port:
        engine = Engine(port)
        view = View("r", [3, 4])
        engine.start(view)
        wait_for(lambda: bool(port._sessions["r"].blocks))
        view.tokens.append((continuation(view.tokens, 1)[0] + 1) % 97)
        gathered = engine.gather()
        assert gathered.missing == {"r": "stale"}
        assert gathered.overtaken == {"r": (4, 0)}
        assert port.status()[0].blocks_stale == 1
        assert engine.gather().overtaken == {}


def test_a_late_block_that_was_right_is_told_of_with_all_its_right_tokens() -> None:
    with serving(ToyDrafter()) as endpoint, ported(endpoint) as port:
        engine = Engine(port, depth=2)
        view = View("r", [3, 4])
        engine.start(view)
        wait_for(lambda: bool(port._sessions["r"].blocks))
        view.tokens.extend(continuation(view.tokens, 3))
        assert engine.gather().overtaken == {"r": (2, 2)}


def test_a_block_worth_nothing_is_not_waited_for_and_used_once_it_has_come() -> None:
    drafter = ToyDrafter()
    gate = threading.Event()
    drafter.spoil = lambda proposals: (gate.wait(10), proposals)[1]
    with serving(drafter) as endpoint, ported(endpoint, options=PortOptions()) as port:
        engine = Engine(port)
        engine.start(*make_views(2))
        wait_for(lambda: bool(drafter.batches))
        unnamed = port.gather(engine.wanted, {})
        assert (unnamed.missing, unnamed.waited_s) == ({"r0": "late", "r1": "late"}, 0.0)
        gate.set()
        wait_for(lambda: all(s.blocks for s in port._sessions.values()))
        assert port.gather(engine.wanted, {}).drafts.keys() == {"r0", "r1"}


def test_the_worths_of_all_missing_blocks_add_up_to_one_wait() -> None:
    drafter = ToyDrafter()
    gate = threading.Event()
    drafter.spoil = lambda proposals: (gate.wait(10), proposals)[1]
    with serving(drafter) as endpoint, ported(endpoint, options=PortOptions()) as port:
        engine = Engine(port)
        engine.start(*make_views(2))
        assert port.gather(engine.wanted, {"r0": 0.01, "r1": 0.02}).waited_s >= 0.03
        gate.set()


def test_who_still_reads_the_prompt_is_cold_over_the_wire_too() -> None:
    drafter = ToyDrafter()
    drafter.spoil = lambda proposals: [replace(p, tokens=(), cold=True) for p in proposals]
    with serving(drafter) as endpoint, ported(endpoint) as port:
        engine = Engine(port)
        engine.start(View("r", [3, 4]))
        assert engine.step().missing == {"r": "cold"}
        drafter.spoil = lambda proposals: [replace(p, tokens=()) for p in proposals]
        step_until(engine, lambda: engine.step().missing == {"r": "empty"})


def test_a_block_past_the_commits_is_kept_until_they_reach_it() -> None:
    """A drafter that runs ahead may guess the commit; its block waits for it."""
    with serving(ToyDrafter()) as endpoint, ported(endpoint, options=IMPATIENT) as port:
        engine = Engine(port, depth=0)
        view = View("r", [3, 4])
        engine.start(view)
        session, home = port._sessions["r"], port._homes["d0"]
        assert session.key is not None
        text = continuation(view.tokens, 6)
        key = codec.key_to_pb(session.key)
        ahead = pb.Block(key=key, round=9, base_len=len(view.tokens) + 2, tokens=text[2:])
        port.on_frame(home.link, pb.DrafterFrame(blocks=[ahead]))
        engine.depth = 4
        assert engine.gather().drafts == {}
        engine.commit({"r": text[:1]})
        assert engine.gather().drafts == {}
        engine.commit({"r": text[1:2]})
        assert engine.gather().drafts["r"].tokens == text[2:]


def test_a_block_of_another_epoch_is_counted_and_answers_nothing() -> None:
    with serving(ToyDrafter()) as endpoint, ported(endpoint, options=IMPATIENT) as port:
        engine = Engine(port, depth=0)
        view = View("r", [3, 4])
        engine.start(view)
        session, home = port._sessions["r"], port._homes["d0"]
        assert session.key is not None
        key = codec.key_to_pb(replace(session.key, epoch=session.key.epoch + 1))
        block = pb.Block(key=key, round=1, base_len=3, tokens=[1])
        port.on_frame(home.link, pb.DrafterFrame(blocks=[block]))
        assert session.answered == -1
        assert not session.blocks
        assert port.status()[0].blocks_stale == 1


def test_nothing_to_propose_is_said_and_not_waited_for() -> None:
    drafter = ToyDrafter()
    drafter.spoil = lambda proposals: [replace(p, tokens=()) for p in proposals]
    with serving(drafter) as endpoint, ported(endpoint) as port:
        engine = Engine(port)
        engine.start(View("r", [1]))
        gathered = engine.step()
        assert gathered.missing == {"r": "empty"}
        assert gathered.waited_s < 1.0


def test_depth_0_keeps_a_session_warm_and_asks_for_nothing() -> None:
    drafter = ToyDrafter()
    with serving(drafter) as endpoint, ported(endpoint) as port:
        engine = Engine(port, depth=0)
        view = View("r", [1])
        engine.start(view)
        for _ in range(3):
            assert engine.step().missing == {"r": "depth-0"}
        wait_for(lambda: [len(t) for t in drafter.tokens.values()] == [len(view.tokens)])
        assert drafter.batches == []
        engine.depth = 4
        engine.step()
        assert engine.step().missing == {}


def test_ids_out_of_the_vocabulary_never_reach_the_target() -> None:
    drafter = ToyDrafter()
    drafter.spoil = lambda proposals: [
        replace(p, tokens=(*p.tokens[:2], 102, 5)) for p in proposals
    ]
    with serving(drafter) as endpoint, ported(endpoint, vocab_size=97) as port:
        engine = Engine(port)
        engine.start(View("r", [1]))
        assert len(engine.step().drafts["r"].tokens) == 2
        assert port.status()[0].faults == {"FAULT_INVALID": 1}


def test_a_blocks_confidence_comes_with_it_and_is_cut_with_it() -> None:
    drafter = ToyDrafter()
    drafter.spoil = lambda proposals: [
        replace(p, tokens=(*p.tokens[:2], 102, 5), confidence=(0.5, 0.25, 1.0, 1.0))
        for p in proposals
    ]
    with serving(drafter) as endpoint, ported(endpoint, vocab_size=97) as port:
        engine = Engine(port)
        engine.start(View("r", [1]))
        assert engine.step().drafts["r"].confidence == (0.5, 0.25)


@pytest.mark.parametrize("told", [(math.nan,) * 4, (math.inf, 0.5, 0.5, 0.5), (0.5,)])
def test_a_confidence_that_is_no_number_a_token_makes_no_block(told: tuple[float, ...]) -> None:
    """A peer's server may send what ours would have held back."""

    def garbled(frame: pb.DrafterFrame) -> pb.DrafterFrame:
        for block in frame.blocks:
            del block.confidence[:]
            block.confidence.extend(told)
        return frame

    with serving(ToyDrafter()) as endpoint, ported(endpoint) as port:
        engine = Engine(port)
        hear = port.on_frame
        port.on_frame = lambda link, frame: hear(link, garbled(frame))  # type: ignore[method-assign]
        engine.start(View("r", [1]))
        gathered = engine.step()
        assert not gathered.drafts
        assert gathered.missing == {"r": "fault"}
        assert port.status()[0].faults["FAULT_INVALID"] >= 1


def test_no_drafter_is_a_reason_and_no_wait() -> None:
    with ported() as port:
        engine = Engine(port)
        engine.start(View("r", [1]))
        gathered = engine.step()
        assert gathered.missing == {"r": "no-drafter"}
        assert gathered.waited_s == 0.0
        assert port.gather({}, {}).drafts == {}
        assert port.gather({"stranger": 3}, {"stranger": 1.0}).missing == {"stranger": "no-drafter"}
    assert port.status() == []


def test_a_resumed_request_opens_with_all_its_tokens() -> None:
    drafter = ToyDrafter()
    with serving(drafter) as endpoint, ported(endpoint) as port:
        engine = Engine(port)
        prompt = [8, 9]
        view = View("r", [*prompt, *continuation(prompt, 20)])
        engine.start(view)
        assert engine.step().missing == {}
        (tokens,) = drafter.tokens.values()
        assert tokens[:22] == [*prompt, *continuation(prompt, 20)]


def test_a_thousand_random_opens_and_aborts_leave_nothing_on_either_side() -> None:
    """L3, with features, so that sessions end in every state of their opening."""
    dice = random.Random(5)
    drafter = ToyDrafter(taps=(1,))
    rows = torch.randn(256, 64).bfloat16()
    with serving(drafter) as endpoint, ported(endpoint, compat=tapped((1,))) as port:
        engine = Engine(port, worth_s=0.0)
        port._options = IMPATIENT
        for number in range(1000):
            view = View(f"r{number}", [number % 97] * dice.randint(1, 20), rows=rows)
            if dice.random() < 0.3:
                port.open(view)
                port.close(view.request_id, "abort")
                continue
            engine.start(view)
            while engine.views and (len(engine.views) > 16 or dice.random() < 0.45):
                engine.stop(dice.choice(list(engine.views)))
            if dice.random() < 0.5 and engine.views:
                engine.step()
        engine.stop()
        assert drafter.wait_empty()
        assert port._sessions == {}
        home = port._homes["d0"]
        assert home.sessions == set()
        assert home.link.feature_bytes == 0
        wait_for(lambda: not home.link._out.closes)
    assert drafter.log.keys() == set(drafter.opened)
