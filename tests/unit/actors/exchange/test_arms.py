"""Several ways to draft behind one port."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from typing_extensions import override

from actors.contracts import Gathered, PortCommit
from actors.exchange.arms import IDLE_TOKENS, MOST_UNTOLD, ArmsPort
from actors.exchange.arms_part import Part
from actors.exchange.arms_view import Columns
from actors.exchange.link import Endpoint
from actors.exchange.pool import RemotePort
from tests.unit.actors.exchange.helpers import View, continuation
from tests.unit.actors.exchange.parts import HIDDEN, StrictPort, Writer, arms_port


def three() -> tuple[StrictPort, StrictPort, StrictPort]:
    """One that needs no features, and two that need some of each other's."""
    return (
        StrictPort("suffix", remote=False),
        StrictPort("eagle3", taps=(2, 5, 7)),
        StrictPort("dflash", taps=(7, 3)),
    )


def test_every_part_gets_every_token_once_and_in_order_over_any_switches() -> None:
    """The parts fail on a gap; what each has at the end is the text, and its rows are the rows."""
    ports = three()
    port = arms_port(*ports)
    rng = random.Random(0)
    writers = [Writer.start(port, f"r{i}", range(1, 3 + i)) for i in range(3)]
    arms = [p.arm for p in ports]
    for _ in range(400):
        writer = rng.choice(writers)
        shadow = (rng.choice(arms), rng.randint(1, 4)) if rng.random() < 0.3 else None
        depth = rng.choice((0, 4))
        writer.write(rng.randint(1, 9), depth, rng.choice(arms), shadow)
        gathered = writer.gather()
        assert bool(gathered.drafts) or not depth
        for draft in gathered.drafts.values():
            assert draft.tokens == continuation(writer.view.tokens, len(draft.tokens))
    for writer in writers:
        for p in ports:
            writer.write(1, 4, p.arm)
            kept = p.sessions[writer.view.request_id]
            assert kept.tokens == writer.view.tokens
            if p.taps:
                told = torch.cat(kept.rows)
                columns = Columns.among(p.taps, port.taps)
                assert torch.equal(told, columns.cut(writer.view.features(0, len(told))))  # type: ignore[arg-type]
                assert len(told) == len(writer.view.tokens) - 1


def test_taps_are_united_and_each_part_has_its_own_columns() -> None:
    port = arms_port(*three())
    assert port.taps == (2, 5, 7, 3)
    rows = torch.arange(2 * 4 * HIDDEN).view(2, -1)
    part = Columns.among((7, 3), port.taps).cut(rows)
    assert part is not None
    assert part.tolist() == [[6, 7, 8, 9, 10, 11], [18, 19, 20, 21, 22, 23]]
    turned = Columns.among((3, 2), port.taps).cut(rows[:1])
    assert turned is not None
    assert turned.tolist() == [[9, 10, 11, 0, 1, 2]]
    assert Columns.among((), port.taps).cut(rows) is None
    assert Columns.among(port.taps, port.taps).cut(rows) is rows
    empty = Columns.among((7, 3), port.taps).cut(rows[:0])
    assert empty is not None
    assert empty.shape == (0, 2 * HIDDEN)


def test_a_block_is_of_the_arm_that_was_asked_last() -> None:
    suffix, eagle, _ = ports = three()
    writer = Writer.start(arms_port(*ports))
    writer.write(1, 4, eagle.arm)
    assert writer.gather().drafts["r"].mechanism == "eagle3"
    writer.write(2, 3, suffix.arm)
    gathered = writer.gather()
    assert gathered.drafts["r"].mechanism == "suffix"
    assert gathered.drafts["r"].draft_us == 7
    assert (eagle.asks, suffix.asks) == ([("r", 4, 0)], [("r", 3, 0)])


def test_a_block_that_is_owed_is_collected_where_it_was_asked_though_nothing_is_asked_since() -> (
    None
):
    suffix, eagle, _ = ports = three()
    writer = Writer.start(arms_port(*ports))
    writer.write(1, 4, eagle.arm)
    assert writer.gather().drafts["r"].mechanism == "eagle3"
    writer.port.gather({}, {})
    assert writer.gather().drafts["r"].mechanism == "eagle3"
    assert suffix.asks == []


def test_a_part_is_opened_when_it_is_first_asked_and_asked_in_the_same_breath() -> None:
    suffix, eagle, dflash = ports = three()
    writer = Writer.start(arms_port(*ports))
    assert [len(p.sessions) for p in ports] == [1, 0, 0]
    writer.write(3, 4, eagle.arm)
    assert writer.gather().missing == {}
    assert [len(p.sessions) for p in ports] == [1, 1, 0]
    assert len(suffix.sessions["r"].tokens) == 3
    assert dflash.asks == []


def test_a_request_is_opened_where_the_last_was_asked_if_that_is_up() -> None:
    suffix, eagle, _ = ports = three()
    port = arms_port(*ports)
    Writer.start(port, "first").write(1, 4, eagle.arm)
    Writer.start(port, "second")
    assert "second" in eagle.sessions
    eagle.up = False
    Writer.start(port, "third")
    assert "third" in suffix.sessions


def test_evidence_is_asked_beside_the_block_and_comes_under_its_own_arm() -> None:
    suffix, eagle, _ = ports = three()
    writer = Writer.start(arms_port(*ports))
    writer.write(2, 4, suffix.arm, shadow=(eagle.arm, 3))
    gathered = writer.gather()
    assert gathered.drafts["r"].mechanism == "suffix"
    arm, draft = gathered.shadows["r"]
    assert arm == eagle.arm
    assert draft.tokens == continuation(writer.view.tokens, 3)
    writer.write(1, 4, suffix.arm)
    assert writer.gather().shadows == {}
    assert eagle.asks == [("r", 0, 3)]


def test_evidence_of_a_part_that_reads_the_prompt_first_is_asked_for_until_it_comes() -> None:
    suffix, eagle, _ = ports = three()
    eagle.cold = True
    writer = Writer.start(arms_port(*ports))
    writer.write(1, 4, suffix.arm, shadow=(eagle.arm, 3))
    for _ in range(3):
        assert writer.gather().shadows == {}
        writer.write(1, 4, suffix.arm)
    eagle.cold = False
    assert writer.gather().shadows.keys() == {"r"}
    writer.write(1, 4, suffix.arm)
    writer.gather()
    assert eagle.asks == [("r", 0, 3)] * 4


def test_who_is_asked_for_a_block_owes_no_evidence_any_more() -> None:
    suffix, eagle, _ = ports = three()
    eagle.cold = True
    writer = Writer.start(arms_port(*ports))
    writer.write(1, 4, suffix.arm, shadow=(eagle.arm, 3))
    writer.write(1, 4, eagle.arm)
    writer.write(1, 4, suffix.arm)
    assert eagle.asks == [("r", 0, 3), ("r", 4, 0)]


def test_evidence_of_the_arm_that_is_asked_anyway_is_its_block() -> None:
    suffix, *_ = ports = three()
    writer = Writer.start(arms_port(*ports))
    writer.write(1, 4, suffix.arm, shadow=(suffix.arm, 8))
    gathered = writer.gather()
    assert gathered.drafts.keys() == {"r"}
    assert gathered.shadows == {}
    writer.write(1)
    assert suffix.asks == [("r", 4, 0)]


def test_a_part_that_is_not_asked_any_more_is_closed_and_opened_when_it_is() -> None:
    suffix, eagle, _ = ports = three()
    writer = Writer.start(arms_port(*ports))
    writer.write(1, 4, eagle.arm)
    writer.write(1, 4, suffix.arm)
    for _ in range(IDLE_TOKENS // 8):
        assert "r" in eagle.sessions
        assert len(writer.view.tokens) - len(eagle.sessions["r"].tokens) <= MOST_UNTOLD
        writer.write(8, 4, suffix.arm)
    assert eagle.closed == [("r", "idle")]
    writer.write(2, 4, eagle.arm)
    assert writer.gather().drafts["r"].mechanism == "eagle3"


def test_the_part_in_use_keeps_its_session_through_a_long_time_of_standard_decode() -> None:
    suffix, eagle, _ = ports = three()
    writer = Writer.start(arms_port(*ports))
    writer.write(1, 4, eagle.arm)
    for _ in range(10):
        writer.write(100)
    assert eagle.sessions["r"].tokens == writer.view.tokens
    assert suffix.sessions == {}


def test_at_the_end_all_that_have_the_request_have_all_of_it() -> None:
    suffix, eagle, _ = ports = three()
    writer = Writer.start(arms_port(*ports))
    writer.write(1, 4, eagle.arm)
    writer.write(5, 4, suffix.arm)
    writer.write(3)
    assert suffix.sessions["r"].tokens == eagle.sessions["r"].tokens == writer.view.tokens
    writer.port.close("r", "stop")
    assert suffix.closed == eagle.closed == [("r", "stop")]


@pytest.mark.parametrize("call", ["arms", "open", "commit", "gather", "close", "prefilled"])
def test_a_part_that_raises_costs_its_own_rows_alone(call: str) -> None:
    suffix, eagle, _ = ports = three()
    port = arms_port(*ports)
    eagle.breaks = {call}
    well, ill = Writer.start(port, "well"), Writer.start(port, "ill")
    for _ in range(3):
        well.write(1, 4, suffix.arm)
        ill.write(1, 4, eagle.arm)
        port.prefilled("ill", 2)
        gathered = port.gather({"well": 4, "ill": 4}, {})
        assert gathered.drafts["well"].mechanism == "suffix"
        assert gathered.missing.keys() | gathered.drafts.keys() == {"well", "ill"}
        assert suffix.arm in port.arms
    for name in ("well", "ill"):
        port.close(name, "stop")
    assert suffix.sessions == {}
    port.shutdown()


def test_a_part_that_failed_to_take_a_commit_starts_anew() -> None:
    _, eagle, _ = ports = three()
    writer = Writer.start(arms_port(*ports))
    writer.write(1, 4, eagle.arm)
    eagle.breaks = {"commit"}
    writer.write(2, 4, eagle.arm)
    assert writer.gather().missing == {"r": "no-drafter"}
    eagle.breaks = set()
    writer.write(1, 4, eagle.arm)
    assert writer.gather().drafts["r"].tokens == continuation(writer.view.tokens, 4)


def test_where_nobody_is_named_the_first_that_is_up_drafts() -> None:
    suffix, eagle, dflash = ports = three()
    port = arms_port(*ports)
    assert list(port.arms) == [suffix.arm, eagle.arm, dflash.arm]
    writer = Writer.start(port)
    suffix.up = False
    assert list(port.arms) == [eagle.arm, dflash.arm]
    writer.write(1, 4)
    assert writer.gather().drafts["r"].mechanism == "eagle3"
    suffix.up = True
    writer.write(1, 4)
    assert writer.gather().drafts["r"].mechanism == "suffix"


def test_an_arm_that_got_deeper_is_the_same_arm() -> None:
    _, eagle, _ = ports = three()
    writer = Writer.start(arms_port(*ports))
    writer.write(1, 4, replace(eagle.arm, max_depth=3))
    assert writer.gather().drafts["r"].mechanism == "eagle3"


def test_what_is_drafted_here_is_drafted_while_the_others_are_waited_for() -> None:
    """And then the parts of most rows; each waits for what its own rows are worth."""
    order: list[str] = []

    class Ordered(StrictPort):
        @override
        def gather(self, wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
            order.append(self.arm.mechanism)
            return super().gather(wanted, worth_s)

    few, many, here = Ordered("few"), Ordered("many"), Ordered("here", remote=False)
    port = arms_port(few, many, here)
    writers = [Writer.start(port, f"r{i}") for i in range(4)]
    for writer, p in zip(writers, (few, many, many, here), strict=True):
        writer.write(1, 4, p.arm)
    gathered = port.gather(dict.fromkeys(["r0", "r1", "r2", "r3"], 4), {"r0": 1.0, "r1": 2.0})
    assert order == ["here", "many", "few"]
    assert gathered.waited_s == 1.5
    assert gathered.drafts.keys() == {"r0", "r1", "r2", "r3"}
    assert (few.worths, many.worths) == ([{"r0": 1.0}], [{"r1": 2.0}])


def test_a_request_that_nobody_opened_is_missing() -> None:
    port = arms_port(*three())
    port.commit([PortCommit("nobody", 0, 3, (1,), 4)])
    assert port.gather({"nobody": 4}, {}).missing == {"nobody": "no-drafter"}
    port.close("nobody", "stop")


def test_nothing_is_left_of_a_closed_request_anywhere() -> None:
    """L3: aborted at any moment, with evidence owed."""
    ports = three()
    port = arms_port(*ports)
    rng = random.Random(3)
    for number in range(60):
        writer = Writer.start(port, f"r{number}")
        for _ in range(rng.randint(0, 4)):
            arm, shadow = rng.choice(ports).arm, rng.choice(ports).arm
            writer.write(rng.randint(1, 3), rng.choice((0, 4)), arm, (shadow, 2))
        port.close(f"r{number}", "abort")
    assert [len(p.sessions) for p in ports] == [0, 0, 0]
    assert not port._sessions
    assert port.gather({}, {}).shadows == {}


def test_a_request_that_is_opened_again_starts_anew_everywhere() -> None:
    suffix, eagle, _ = ports = three()
    port = arms_port(*ports)
    Writer.start(port).write(1, 4, eagle.arm)
    writer = Writer.start(port)
    assert eagle.closed == [("r", "opened again")]
    writer.write(1, 4, suffix.arm)
    assert writer.gather().missing == {}


def test_status_is_every_parts() -> None:
    assert [r.drafter for r in arms_port(*three()).status()] == ["suffix", "eagle3", "dflash"]


def test_two_parts_of_one_kind_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"suffix@remote.*suffix@remote"):
        arms_port(StrictPort("suffix"), StrictPort("suffix"))
    with pytest.raises(ValueError, match="one part"):
        ArmsPort([])


class Listed(RemotePort):
    """Remembers what it is given and connects to nobody."""

    given: tuple[str, ...] = ()

    @override
    def set_endpoints(self, endpoints: Sequence[Endpoint]) -> None:
        self.given = tuple(e.name for e in endpoints)


ENDPOINTS = [Endpoint("a", "h:1", "suffix"), Endpoint("b", "h:2", "eagle3"), Endpoint("c", "h:3")]


def test_each_part_gets_the_drafters_of_its_mechanism() -> None:
    suffix, eagle = Listed("v"), Listed("v")
    port = ArmsPort([Part("suffix", True, suffix), Part("eagle3", True, eagle)])
    port.set_endpoints(ENDPOINTS)
    assert (suffix.given, eagle.given) == (("a",), ("b",))
    port.set_endpoints([])
    assert (suffix.given, eagle.given) == ((), ())


def test_drafters_that_name_themselves_go_to_the_part_that_names_nobody() -> None:
    suffix, any_other = Listed("v"), Listed("v")
    port = ArmsPort([Part("suffix", True, suffix), Part("", True, any_other)])
    port.set_endpoints(ENDPOINTS)
    assert (suffix.given, any_other.given) == (("a",), ("b", "c"))


def test_a_view_shows_what_a_session_is_opened_with_and_then_all() -> None:
    ports = three()
    port = arms_port(*ports)
    writer = Writer.start(port)
    writer.write(4, 2, ports[1].arm)
    view = ports[1].sessions["r"].view
    assert list(view.tokens) == writer.view.tokens
    assert isinstance(writer.view, View)
    assert (view.prompt_len, view.tenant, view.trace) == (3, "", ("", ""))
    assert view.sampling is writer.view.sampling
