"""L1, greedy: whatever the drafter, D, batch or timing, the text is the target's own (fp64)."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.contracts import Drafter
from tests.drafters.anti import AntiDrafter
from tests.drafters.exact_k import ExactKDrafter
from tests.drafters.oracle import OracleDrafter
from tests.drafters.scripted import ScriptedDrafter
from tests.law.harness import GREEDY, assert_pools_full, make_engine, plain, request, run
from tests.models import make_rand

MODEL = make_rand()
PROMPTS = [[3, 1, 4, 1, 5], [9, 2, 6], [5, 3, 5, 8, 9, 7, 9], [2, 7, 1, 8, 2, 8, 1, 8]]
PLAIN = {tuple(p): plain(MODEL, p) for p in PROMPTS}


def next_token(prefix, params) -> int:
    """The target's own greedy continuation, for oracle-like drafters."""
    for prompt, text in PLAIN.items():
        whole = [*prompt, *text]
        if list(prefix) == whole[: len(prefix)] and len(prefix) < len(whole):
            return whole[len(prefix)]
    return 0


def make_drafter(kind: str) -> Drafter:
    if kind == "oracle":
        return OracleDrafter(next_token, vocab_size=128)
    if kind.startswith("exact"):
        return ExactKDrafter(next_token, vocab_size=128, k=int(kind[-1]))
    if kind == "anti":
        return AntiDrafter(next_token, vocab_size=128)
    rng = random.Random(1)
    blocks = [[rng.randrange(128) for _ in range(8)] for _ in range(97)]
    return ScriptedDrafter(blocks, vocab_size=128, repeat=True)


KINDS = ["oracle", "exact-1", "exact-3", "anti", "scripted"]


@pytest.mark.parametrize("depth", range(1, 9))
@pytest.mark.parametrize("kind", KINDS)
def test_any_drafter_at_any_depth_gives_the_targets_own_tokens(kind: str, depth: int) -> None:
    engine = make_engine(MODEL, make_drafter(kind), depth)
    texts = run(engine, *(request(str(i), p) for i, p in enumerate(PROMPTS)))
    assert texts == {str(i): PLAIN[tuple(p)] for i, p in enumerate(PROMPTS)}
    assert_pools_full(engine)


@pytest.mark.parametrize("depth", range(1, 9))
def test_an_oracle_is_always_accepted(depth: int) -> None:
    """I2: accepted / drafted is exactly 1 and rounds == ceil((n - 1) / (D + 1)) (S28)."""
    engine = make_engine(MODEL, make_drafter("oracle"), depth)
    run(engine, request("a", PROMPTS[0]))
    assert engine.stats.drafted == engine.stats.accepted > 0
    rounds = -(-(GREEDY.max_tokens - 1) // (depth + 1))
    assert engine.stats.steps == 1 + rounds


def test_an_anti_drafter_is_never_accepted() -> None:
    engine = make_engine(MODEL, make_drafter("anti"), 4)
    run(engine, request("a", PROMPTS[0]))
    assert engine.stats.drafted > 0
    assert engine.stats.accepted == 0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),  # prompt
            st.integers(0, 8),  # D of the request
            st.integers(0, 6),  # arrival: after so many steps
            st.one_of(st.none(), st.integers(1, 8)),  # abort after so many more steps
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(KINDS),
)
def test_ragged_batches_arrivals_and_aborts_change_nobodys_text(plans, kind: str) -> None:
    engine = make_engine(MODEL, make_drafter(kind), 8, blocks=48, max_num_seqs=3)
    texts: dict[str, list[int]] = {}
    aborted: set[str] = set()
    step = 0
    while step < 7 or engine.has_work:
        for i, (prompt, depth, arrival, _) in enumerate(plans):
            if arrival == step:
                engine.add(request(str(i), PROMPTS[prompt], max_draft_len=depth))
                texts[str(i)] = []
        for i, (_, _, arrival, abort) in enumerate(plans):
            if abort is not None and step == arrival + abort and engine.abort(str(i)):
                aborted.add(str(i))
        if engine.has_work:
            for event in engine.step():
                assert event.request_id not in aborted
                texts[event.request_id].extend(event.tokens)
        step += 1
    for i, (prompt, *_) in enumerate(plans):
        own = PLAIN[tuple(PROMPTS[prompt])]
        got = texts[str(i)]
        assert got == (own[: len(got)] if str(i) in aborted else own)
    assert_pools_full(engine)


def test_chunked_prefill_and_preemption_change_nobodys_text() -> None:
    """A pool too small for all and a row budget smaller than a prompt (S38)."""
    engine = make_engine(
        MODEL, make_drafter("exact-3"), 4, blocks=8, block_size=8, max_model_len=64, max_rows=4
    )
    texts = run(engine, *(request(str(i), p) for i, p in enumerate(PROMPTS)))
    assert texts == {str(i): PLAIN[tuple(p)] for i, p in enumerate(PROMPTS)}
    assert engine.stats.preemptions > 0
    assert_pools_full(engine)


@pytest.mark.parametrize("written", range(0, 24, 3))
def test_another_verifier_goes_on_from_committed_tokens(written: int) -> None:
    """Resumable input: (prompt, output so far, seed, parameters) is all there is."""
    prompt = PROMPTS[2]
    own = PLAIN[tuple(prompt)]
    engine = make_engine(MODEL, make_drafter("exact-3"), 4)
    rest = run(engine, request("a", prompt, output_ids=tuple(own[:written])))["a"]
    assert own[:written] + rest == own
