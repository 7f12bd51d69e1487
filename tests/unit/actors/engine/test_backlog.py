"""The line: priorities strictly, the preempted first, tenants alike, then by arrival."""

from __future__ import annotations

import pytest
import torch

from actors.engine.backlog import Backlog
from actors.engine.kv import BlockTable, KVPool
from actors.engine.sequence import EngineRequest, Sequence
from actors.sampling.params import SamplingParams

POOL = KVPool((), 1, 1, torch.float32, "cpu")


def make_line(*entries: tuple[str, str, int]) -> tuple[Backlog, dict[str, Sequence]]:
    """(name, tenant, priority), in order of arrival."""
    line, sequences = Backlog(), dict[str, Sequence]()
    for order, (name, tenant, priority) in enumerate(entries):
        request = EngineRequest(name, (1,), SamplingParams(), tenant=tenant, priority=priority)
        seq = Sequence(request, [1], BlockTable(1, "cpu"), POOL, 9, 0, order=order)
        sequences[name] = seq
        line.push(seq)
    return line, sequences


def drain(line: Backlog) -> list[str]:
    """Names in the order they would be let in, all of them running together."""
    running: dict[str, int] = {}
    names = []
    while (seq := line.first(running)) is not None:
        line.remove(seq)
        running[seq.tenant] = running.get(seq.tenant, 0) + 1
        names.append(seq.request_id)
    return names


def test_tenants_take_turns_and_each_keeps_its_order() -> None:
    line, _ = make_line(("a1", "a", 0), ("a2", "a", 0), ("a3", "a", 0), ("b1", "b", 0))
    assert drain(line) == ["a1", "b1", "a2", "a3"]
    assert len(line) == 0


def test_the_tenant_with_the_fewest_running_is_next() -> None:
    line, _ = make_line(("a1", "a", 0), ("b1", "b", 0))
    first = line.first({"a": 3, "b": 2})
    assert first is not None
    assert first.request_id == "b1"


def test_priority_goes_before_fairness() -> None:
    line, _ = make_line(("b1", "b", 1), ("a1", "a", 0), ("a2", "a", 0))
    assert drain(line) == ["a1", "a2", "b1"]


def test_the_last_of_the_largest_crowd_gives_way_while_it_has_more_than_the_newcomer() -> None:
    line, _ = make_line(("a1", "a", 0), ("a2", "a", 1), ("a3", "a", 0), ("b1", "b", 0))
    for tenant, gives_way in (("c", "a2"), ("b", "a2"), ("a", None)):
        crowd = line.crowd(tenant)
        assert (crowd and crowd.request_id) == gives_way
    even, _ = make_line(("a1", "a", 0), ("a2", "a", 0), ("b1", "b", 0))
    assert even.crowd("b") is None


def test_nobody_who_was_heard_from_gives_way() -> None:
    line, sequences = make_line(("a1", "a", 0), ("a2", "a", 0), ("a3", "a", 0))
    for name in ("a2", "a3"):  # both have run before
        line.remove(sequences[name])
        sequences[name].preemptions = 1
        line.push(sequences[name])
    crowd = line.crowd("b")
    assert crowd is sequences["a1"]
    line.remove(crowd)
    assert line.crowd("b") is None


def test_an_abort_leaves_the_order_of_the_others() -> None:
    line, sequences = make_line(*((f"r{i}", "", i % 3) for i in range(9)))
    line.remove(sequences["r3"])
    with pytest.raises(ValueError, match="r3 does not wait"):
        line.remove(sequences["r3"])
    assert line.tokens == len(line) == 8
    assert drain(line) == ["r0", "r6", "r1", "r4", "r7", "r2", "r5", "r8"]
