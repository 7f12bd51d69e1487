"""Who waits for whom: nobody for a long prompt, no tenant for another, the urgent for nobody."""

from __future__ import annotations

import pytest

from actors.engine.core import Engine, drain
from actors.engine.errors import Overloaded
from actors.sampling.params import SamplingParams
from policies.pace import STALL_S, Pace
from tests.drafters.oracle import OracleDrafter
from tests.law.harness import assert_pools_full, make_engine, plain, request
from tests.models import make_rand

MODEL = make_rand()
PARAMS = SamplingParams(temperature=0.0, max_tokens=4)


def prompt(length: int, start: int = 0) -> list[int]:
    return [(7 * i + start) % 128 for i in range(length)]


def first_tokens(engine: Engine, steps: int = 200) -> list[str]:
    """Request ids in the order of their first tokens."""
    order: list[str] = []
    for _ in range(steps):
        if not engine.has_work:
            return order
        order += [e.request_id for e in engine.step() if e.first]
    raise AssertionError("still at work")


def test_a_running_stream_writes_in_every_step_of_a_long_prompt() -> None:
    engine = make_engine(MODEL, max_rows=16, max_num_seqs=4)
    engine.add(request("stream", prompt(3), SamplingParams(temperature=0.0, max_tokens=40)))
    engine.step()
    engine.add(request("long", prompt(150, 1), PARAMS))
    for _ in range(150 // 15 - 1):
        assert [e.request_id for e in engine.step() if e.tokens] == ["stream"]
        assert engine.sequences["long"].pending > 1
    engine.shutdown()


def test_a_long_prompt_takes_few_rows_beside_streams_where_rows_are_dear_and_all_alone() -> None:
    engine = make_engine(MODEL, max_rows=128)
    engine._stall_s = STALL_S
    dear = Pace(decode_s=0.01, row_s=0.002)  # so 45 rows take 0.09 s
    engine.add(request("stream", prompt(3), SamplingParams(temperature=0.0, max_tokens=40)))
    engine.step()
    engine.add(request("long", prompt(200, 1), PARAMS))
    engine.pace = dear
    engine.step()
    assert engine.sequences["long"].kv_len == 45
    engine.abort("stream")
    engine.pace = dear
    engine.step()
    assert engine.sequences["long"].kv_len == 45 + 128
    assert engine.pace != dear  # learnt from the step's own time
    engine.shutdown()


@pytest.mark.parametrize("max_rows", [2, 3, 4])
def test_drafts_leave_a_row_for_prompts_however_few_there_are(max_rows: int) -> None:
    """A drafter that fills every row it is given does not shut a prompt out."""
    whole = [*prompt(3), *plain(MODEL, prompt(3), SamplingParams(temperature=0.0, max_tokens=60))]
    oracle = OracleDrafter(lambda prefix, _: [*whole, 0][len(prefix)], vocab_size=128)
    engine = make_engine(MODEL, oracle, 8, max_rows=max_rows, max_num_seqs=2)
    engine.add(request("stream", prompt(3), SamplingParams(temperature=0.0, max_tokens=60)))
    while not engine.stats.drafted:
        engine.step()
    engine.add(request("late", prompt(5, 1), PARAMS))
    engine.step()
    before = engine.sequences["late"].kv_len
    engine.step()
    assert engine.sequences["late"].kv_len > before
    engine.shutdown()


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    engine = make_engine(MODEL, max_rows=16, max_num_seqs=4)
    engine.add(request("long", prompt(150), PARAMS))
    engine.step()
    engine.add(request("short", prompt(8, 1), PARAMS))
    assert [e.request_id for e in engine.step()] == ["short"]
    # And the long one is not starved by any number of short ones.
    steps = 0
    while engine.sequences["long"].pending > 1:
        steps += 1
        engine.add(request(f"more-{steps}", prompt(8, steps), PARAMS))
        engine.step()
    assert steps <= 2 * 150 // 8
    engine.shutdown()
    assert_pools_full(engine)


def test_a_crowd_of_one_tenant_does_not_keep_another_from_its_place() -> None:
    engine = make_engine(MODEL, max_num_seqs=2)
    for i in range(6):
        ends = SamplingParams(temperature=0.0, max_tokens=4 + i % 2)  # never two at once
        engine.add(request(f"crowd-{i}", prompt(4, i), ends, tenant="crowd"))
    engine.step()
    engine.add(request("one", prompt(4, 9), PARAMS, tenant="one"))
    order = first_tokens(engine)
    assert order.index("one") == 0  # the next place that becomes free
    assert order[1:] == [f"crowd-{i}" for i in range(2, 6)]
    assert_pools_full(engine)


def test_a_lower_priority_value_is_served_first_and_equals_in_order() -> None:
    engine = make_engine(MODEL, max_num_seqs=1)
    for name, priority in (("b", 5), ("c", 5), ("a", -1), ("d", 7)):
        engine.add(request(name, prompt(4), PARAMS, priority=priority))
    assert first_tokens(engine) == ["a", "b", "c", "d"]


def test_the_least_urgent_sequence_gives_its_blocks_up_first() -> None:
    long = SamplingParams(temperature=0.0, max_tokens=24)
    engine = make_engine(MODEL, blocks=8, block_size=4, max_model_len=32)
    for name, priority in (("later", 1), ("sooner", 0)):
        engine.add(request(name, prompt(8, priority), long, priority=priority))
    preempted = set()
    texts: dict[str, list[int]] = {"later": [], "sooner": []}
    while engine.has_work:
        running = dict(engine.sequences)
        for event in engine.step():
            texts[event.request_id].extend(event.tokens)
        preempted |= {name for name, seq in running.items() if seq.preemptions}
    assert preempted == {"later"}
    assert texts == {
        name: plain(MODEL, prompt(8, priority), long)
        for name, priority in (("later", 1), ("sooner", 0))
    }
    assert_pools_full(engine)


def test_a_preempted_request_goes_before_the_new_ones_of_its_priority() -> None:
    engine = make_engine(MODEL, max_num_seqs=1)
    engine.add(request("old", prompt(4), PARAMS))
    engine.step()
    engine.add(request("new", prompt(4, 1), PARAMS))
    engine.add(request("urgent", prompt(4, 2), PARAMS, priority=-1))
    engine.scheduler.preempt(engine.sequences["old"])
    order: list[str] = []
    for event in drain(engine):
        if event.request_id not in order:
            order.append(event.request_id)
    assert order == ["urgent", "old", "new"]


def test_the_queue_is_bounded_in_requests_and_in_tokens() -> None:
    engine = make_engine(MODEL, max_num_seqs=1)
    engine.limits.max_num_queued_reqs = 3
    engine.limits.max_num_queued_tokens = 30
    engine.add(request("huge", prompt(60), PARAMS))  # alone it may have any length
    with pytest.raises(Overloaded) as refusal:
        engine.add(request("small", prompt(1), PARAMS))
    assert refusal.value.param == "max_num_queued_tokens"
    engine.step()
    for name in "abc":
        engine.add(request(name, prompt(10), PARAMS))
    with pytest.raises(Overloaded) as refusal:
        engine.add(request("d", prompt(10), PARAMS))
    assert refusal.value.param == "max_num_queued_reqs"
    assert set(engine.sequences) == {"huge", "a", "b", "c"}
    engine.shutdown()
    assert_pools_full(engine)


def test_a_tenant_that_fills_the_queue_gives_way_to_one_that_has_nothing_in_it() -> None:
    engine = make_engine(MODEL, max_num_seqs=1)
    engine.limits.max_num_queued_reqs = 4
    for i in range(4):
        engine.add(request(f"crowd-{i}", prompt(4, i), PARAMS, tenant="crowd"))
    (refused,) = engine.add(request("one", prompt(4, 9), PARAMS, tenant="one"))
    assert (refused.request_id, refused.finish) == ("crowd-3", "error")
    assert isinstance(refused.error, Overloaded)
    with pytest.raises(Overloaded):
        engine.add(request("crowd-4", prompt(4), PARAMS, tenant="crowd"))
    assert sorted(first_tokens(engine)) == ["crowd-0", "crowd-1", "crowd-2", "one"]
    assert_pools_full(engine)
