"""A request ends where plain decode ends, whatever stands in the block (S01, S04, S05, S09, S35).

SUCC fixture: the greedy next of t is (t + 1) % 16, so the right text is known by hand.
"""

from __future__ import annotations

import pytest

from actors.engine.core import Engine
from actors.engine.errors import DuplicateRequest, InvalidRequest, Overloaded
from actors.sampling.params import SamplingParams
from tests.drafters.oracle import OracleDrafter
from tests.drafters.scripted import ScriptedDrafter
from tests.law.harness import assert_pools_full, events_of, make_engine, request, run
from tests.models import make_rand, make_succ


def greedy(**keywords) -> SamplingParams:
    return SamplingParams(temperature=0.0, **keywords)


def successor(prefix, params) -> int:
    return (prefix[-1] + 1) % 16


def make_oracle_engine(depth: int, eos: int | None = None, **keywords) -> Engine:
    return make_engine(make_succ(eos), OracleDrafter(successor, vocab_size=16), depth, **keywords)


@pytest.mark.parametrize("depth", range(9))
def test_eos_inside_an_accepted_block_ends_the_text_there(depth: int) -> None:
    engine = make_oracle_engine(depth, eos=7)
    events = events_of(engine, request("a", [3], greedy(max_tokens=50)))
    assert [t for e in events for t in e.tokens] == [4, 5, 6, 7]
    assert events[-1].finish == "stop"
    assert [e.finish for e in events[:-1]] == [None] * (len(events) - 1)
    assert sum(e.accepted for e in events) <= 3
    assert_pools_full(engine)


def test_ignore_eos_runs_on_and_min_tokens_masks_eos() -> None:
    params = greedy(max_tokens=6, ignore_eos=True)
    on = run(make_oracle_engine(4, eos=7), request("a", [3], params))
    assert on["a"] == [4, 5, 6, 7, 8, 9]
    masked = run(
        make_oracle_engine(4, eos=7), request("a", [3], greedy(max_tokens=9, min_tokens=6))
    )
    assert 7 not in masked["a"][:6]
    assert len(masked["a"]) >= 6


@pytest.mark.parametrize("depth", range(9))
@pytest.mark.parametrize("stop", range(4, 12))
def test_a_stop_token_ends_the_text_at_every_place_in_the_block(stop: int, depth: int) -> None:
    params = greedy(max_tokens=20, stop_token_ids=frozenset([stop]))
    events = events_of(make_oracle_engine(depth), request("a", [3], params))
    assert [t for e in events for t in e.tokens] == list(range(4, stop + 1))
    assert (events[-1].finish, events[-1].stop_token) == ("stop", stop)


@pytest.mark.parametrize("depth", [0, 4, 8])
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 9, 10, 11])
def test_exactly_max_tokens_are_written(limit: int, depth: int) -> None:
    engine = make_oracle_engine(depth)
    events = events_of(engine, request("a", [3], greedy(max_tokens=limit)))
    assert [t for e in events for t in e.tokens] == [(4 + i) % 16 for i in range(limit)]
    assert events[-1].finish == "length"
    if limit == 1:
        assert engine.stats.drafted == 0


def test_stop_at_the_limit_is_a_stop_and_before_it_wins() -> None:
    stop = frozenset([6])
    at = events_of(
        make_oracle_engine(4), request("a", [3], greedy(max_tokens=3, stop_token_ids=stop))
    )
    assert at[-1].finish == "stop"
    before = events_of(
        make_oracle_engine(4), request("a", [3], greedy(max_tokens=2, stop_token_ids=stop))
    )
    assert before[-1].finish == "length"


def test_a_drafted_eos_that_the_target_rejects_ends_nothing() -> None:
    """S09: the block [5, EOS, 7, 8] has one good token; the text goes on to max_tokens."""
    engine = make_engine(make_succ(15), ScriptedDrafter([[5, 15, 7, 8]]), 4)
    events = events_of(engine, request("a", [3], greedy(max_tokens=8)))
    assert [t for e in events for t in e.tokens] == [4, 5, 6, 7, 8, 9, 10, 11]
    assert events[-1].finish == "length"


@pytest.mark.parametrize("prompt_len", range(57, 64))
@pytest.mark.parametrize("depth", [0, 4])
def test_the_context_is_filled_to_the_last_position_and_no_further(
    prompt_len: int, depth: int
) -> None:
    model = make_succ()
    engine = make_engine(
        model, OracleDrafter(successor, vocab_size=16), depth, max_model_len=64, blocks=16
    )
    positions: list[int] = []
    forward = engine.target.forward

    def spy(batch, pool):
        positions.extend(batch.positions[0].tolist())
        return forward(batch, pool)

    engine.target.forward = spy
    events = events_of(engine, request("a", [3] * prompt_len, greedy(max_tokens=1_000_000)))
    assert sum(len(e.tokens) for e in events) == 64 - prompt_len
    assert events[-1].finish == "length"
    assert max(positions) < 64


@pytest.mark.parametrize(
    ("prompt", "params", "field"),
    [
        ([], greedy(max_tokens=4), "prompt"),
        ([3] * 64, greedy(max_tokens=4), "prompt"),
        ([3] * 65, greedy(max_tokens=4), "prompt"),
        ([16], greedy(max_tokens=4), "prompt"),
        ([-1], greedy(max_tokens=4), "prompt"),
        ([3], greedy(max_tokens=0), "max_tokens"),
    ],
)
def test_what_cannot_be_served_is_refused_by_the_fields_name(prompt, params, field: str) -> None:
    engine = make_oracle_engine(4, max_model_len=64)
    with pytest.raises(InvalidRequest) as refusal:
        engine.add(request("a", prompt, params))
    assert refusal.value.param == field
    assert_pools_full(engine)


def test_a_request_id_in_use_and_a_full_queue_are_refused() -> None:
    engine = make_engine(make_rand())
    engine.limits.max_num_queued_reqs = 1
    engine.add(request("a", [1]))
    with pytest.raises(DuplicateRequest):
        engine.add(request("a", [1]))
    with pytest.raises(Overloaded):
        engine.add(request("b", [1]))
    engine.abort("a")
    assert_pools_full(engine)


@pytest.mark.parametrize(("written", "finish"), [((4, 5, 6, 7), "stop"), ((4, 5, 6), "length")])
def test_a_request_taken_over_after_its_last_token_ends_at_once(written, finish: str) -> None:
    engine = make_oracle_engine(4, eos=7)
    params = greedy(max_tokens=3 if finish == "length" else 50)
    (event,) = events_of(engine, request("a", [3], params, output_ids=written))
    assert (event.tokens, event.finish) == ((), finish)
    assert_pools_full(engine)
