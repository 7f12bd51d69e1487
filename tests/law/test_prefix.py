"""A shared prefix changes when a text is computed and never what it is (L1, L3; pitfalls S39)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from actors.engine.core import Engine, drain
from actors.engine.events import TokenEvent
from actors.engine.sequence import EngineRequest
from actors.sampling.params import SamplingParams
from tests.drafters.feature_receiver import FeatureReceiver
from tests.drafters.oracle import OracleDrafter
from tests.law.harness import (
    GREEDY,
    assert_pools_full,
    events_of,
    make_engine,
    plain,
    request,
    run,
)
from tests.models import make_rand

MODEL = make_rand(layers=3)
SYSTEM = [(5 * i + 2) % 128 for i in range(21)]
FIRST, SECOND = [*SYSTEM, 9, 8], [*SYSTEM, 3, 1, 4, 1, 5]
PLAIN = {tuple(p): plain(MODEL, p) for p in (SYSTEM, FIRST, SECOND)}
BLOCK = 8


def next_token(prefix: Sequence[int], params: SamplingParams) -> int:
    for prompt, own in PLAIN.items():
        whole = [*prompt, *own]
        if list(prefix) == whole[: len(prefix)] and len(prefix) < len(whole):
            return whole[len(prefix)]
    return 0


def cached(events: Sequence[TokenEvent]) -> int:
    """Of a request's events: what its first one says came from the cache."""
    (first,) = (e for e in events if e.first)
    assert all(e.cached_tokens == 0 for e in events if not e.first)
    return first.cached_tokens


def record_logits(engine: Engine) -> list[torch.Tensor]:
    """The logits of every forward from now on."""
    seen: list[torch.Tensor] = []
    forward = engine.target.forward

    def spy(batch, pool):
        logits = forward(batch, pool)
        seen.append(logits.clone())
        return logits

    engine.target.forward = spy
    return seen


def test_a_hit_is_whole_blocks_and_leaves_a_token_to_compute() -> None:
    engine = make_engine(MODEL)
    for prompt, expected in ((FIRST, 0), (SECOND, 16), (FIRST, 16), (SYSTEM[:17], 16)):
        assert cached(events_of(engine, request("a", prompt))) == expected
    before = engine.stats.prefill_tokens
    # Two blocks exactly: the second one's last token must be computed, so all of it is.
    assert cached(events_of(engine, request("a", SYSTEM[:16]))) == 8
    assert engine.stats.prefill_tokens - before == 8
    assert_pools_full(engine)


def test_the_text_written_before_is_a_prefix_too() -> None:
    """The next turn of a conversation: prompt and answer of the last one."""
    engine = make_engine(MODEL)
    answer = run(engine, request("a", FIRST))["a"]
    turn = [*FIRST, *answer, 7, 7, 7]
    events = events_of(engine, request("b", turn))
    # The newest token of an answer has no KV; 23 + 24 tokens leave 46 rows, five full blocks.
    assert cached(events) == 40
    assert [t for e in events for t in e.tokens] == plain(MODEL, turn)


@pytest.mark.parametrize("depth", [1, 4, 8])
@pytest.mark.parametrize("cancel", [False, True])
def test_a_drafter_accepts_after_a_hit_what_it_accepts_cold(depth: int, cancel: bool) -> None:
    """S39: B = A's prompt and a suffix, A finished or cancelled right after its prefill. B's
    drafts, features, logits and text are those of a cold engine."""
    results = []
    for warm in (False, True):
        drafter = FeatureReceiver((0, 1, 3), 128, next_token)
        engine = make_engine(MODEL, drafter, depth)
        if warm:
            engine.add(request("a", FIRST))
            if cancel:
                engine.step()
                engine.abort("a")
            list(drain(engine))
        logits = record_logits(engine)
        drafted, accepted = engine.stats.drafted, engine.stats.accepted
        events = events_of(engine, request("b", SECOND))
        assert cached(events) == (16 if warm else 0)
        assert [t for e in events for t in e.tokens] == PLAIN[tuple(SECOND)]
        assert drafter.faults == []
        assert engine.stats.accepted - accepted == engine.stats.drafted - drafted > 0
        rows = drafter.received(next(k for k in drafter.log if k.request == "b"))
        results.append((torch.cat(logits), rows, [e.drafted for e in events]))
        assert_pools_full(engine)
    (cold_logits, cold_rows, cold_drafts), (logits, rows, drafts) = results
    assert (logits - cold_logits).abs().max() < 1e-9
    assert drafts == cold_drafts
    # fp64 states of two batch shapes, rounded to bf16: at most one unit in the last place apart.
    torch.testing.assert_close(rows, cold_rows, atol=0.0, rtol=2**-7)


def test_requests_that_run_side_by_side_share_the_blocks_of_their_prefix() -> None:
    engine = make_engine(MODEL, blocks=64)
    engine.add(request("a", FIRST))
    engine.step()
    held = engine.allocator.num_blocks - engine.allocator.free
    engine.add(request("b", SECOND))
    engine.step()
    shared = engine.sequences["a"].table.blocks[:2]
    assert engine.sequences["b"].table.blocks[:2] == shared
    # 27 tokens of b in blocks of 8, two of them a's.
    assert engine.allocator.num_blocks - engine.allocator.free == held + 2
    engine.abort("a")
    texts = {e.request_id: e for e in drain(engine)}
    assert texts.keys() == {"b"}
    assert_pools_full(engine)


@pytest.mark.parametrize("field", ["tenant", "cache_salt"])
def test_no_tenant_and_no_salt_sees_what_another_computed(field: str) -> None:
    """Not even in the time it takes: the rows are computed again."""
    engine = make_engine(MODEL)
    for owner, hit in (("a", 0), ("b", 0), ("a", 16), ("", 0), ("b", 16)):
        before = engine.stats.prefill_tokens
        events = events_of(engine, request("r", FIRST, **{field: owner}))
        assert cached(events) == hit
        assert engine.stats.prefill_tokens - before == len(FIRST) - hit


def test_what_drafters_keep_across_requests_is_kept_apart_like_prefixes() -> None:
    """A store that is shared between requests goes by the tenant of OpenSession."""
    drafter = OracleDrafter(next_token, vocab_size=128)
    tenants: list[str] = []
    take = drafter.open

    def watch(sessions):
        tenants.extend(session.tenant for session in sessions)
        take(sessions)

    drafter.open = watch
    engine = make_engine(MODEL, drafter)
    for owner in ({"tenant": "a"}, {"tenant": "b"}, {"tenant": "a", "cache_salt": "x"}):
        for _ in range(2):
            run(engine, request("r", FIRST, **owner))
    run(engine, request("r", FIRST, tenant="a", cache_salt="y"))
    assert tenants[0] == tenants[1] == "a"
    assert tenants[2] == tenants[3] == "b"
    assert tenants[4] == tenants[5]
    assert len(set(tenants)) == 4


def test_without_the_cache_every_prompt_is_computed_whole() -> None:
    engine = make_engine(MODEL, prefix=False)
    for _ in range(2):
        assert cached(events_of(engine, request("a", FIRST))) == 0
    assert engine.stats.prefill_tokens == 2 * len(FIRST)
    assert (engine.stats.prefix_queries, engine.stats.prefix_hits) == (0, 0)
    assert engine.allocator.idle == 0


def test_hits_and_queries_are_counted_in_tokens() -> None:
    engine = make_engine(MODEL)
    run(engine, request("a", FIRST))
    run(engine, request("b", SECOND))
    assert engine.stats.prefix_queries == len(FIRST) + len(SECOND)
    assert engine.stats.prefix_hits == 16


def test_what_a_failed_request_computed_is_shared_with_nobody() -> None:
    """A prompt's inner chunk goes wrong once, unnoticed until its last row is looked at."""
    engine = make_engine(MODEL, max_rows=8, max_num_seqs=2)
    forward, broken = engine.target.forward, [True]

    def poison(batch, pool):
        logits = forward(batch, pool)
        if broken and batch.positions[0, 0] == 0:
            broken.clear()
            pool.values[1][batch.slots] = math.nan
        return logits

    engine.target.forward = poison
    (failed,) = (e for e in events_of(engine, request("a", FIRST)) if e.finish)
    assert failed.error is not None
    events = events_of(engine, request("b", FIRST))
    assert cached(events) == 0
    assert [t for e in events for t in e.tokens] == PLAIN[tuple(FIRST)]
    assert_pools_full(engine)


def test_a_preempted_request_goes_on_from_what_the_cache_still_has() -> None:
    engine = make_engine(MODEL, OracleDrafter(next_token, vocab_size=128), 3)
    engine.add(request("a", FIRST))
    for _ in range(3):
        engine.step()
    seq = engine.sequences["a"]
    rows, computed = seq.kv_len, engine.stats.prefill_tokens
    engine.scheduler.preempt(seq)
    assert (seq.kv_len, seq.table.blocks) == (0, [])
    tokens = list(seq.tokens[len(FIRST) :])
    engine.step()
    # Every full block came back; only the rest was computed again, with the step's own row.
    assert engine.stats.prefill_tokens - computed == rows + 1 - rows // BLOCK * BLOCK
    tokens = [*seq.tokens[len(FIRST) :]]
    for event in drain(engine):
        tokens.extend(event.tokens)
    assert tokens == PLAIN[tuple(FIRST)]
    assert engine.stats.prefix_queries == len(FIRST)  # looked up once, for its prompt
    assert_pools_full(engine)


def test_a_request_taken_over_counts_only_its_prompt_as_cached() -> None:
    engine = make_engine(MODEL)
    own = PLAIN[tuple(FIRST)]
    run(engine, request("a", FIRST))
    events = events_of(engine, EngineRequest("b", tuple(FIRST), GREEDY, tuple(own[:20])))
    assert cached(events) == len(FIRST)
    assert [t for e in events for t in e.tokens] == own[20:]
