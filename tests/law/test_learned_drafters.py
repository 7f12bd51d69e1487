"""Drafters that read the target's features: incremental, batched, resynchronised from true
features after each commit; through the engine, co-located and over the wire."""

from __future__ import annotations

import functools
import random
from dataclasses import replace

import pytest
import torch

from actors.contracts import DrafterError, DraftRequest
from actors.sampling.law import problem
from actors.sampling.params import SamplingParams
from tests.checkpoints.target import target
from tests.law.harness import GREEDY, SAMPLED, assert_pools_full, make_engine, plain, request, run
from tests.law.learned import (
    MECHANISMS,
    Follower,
    assert_same_block,
    fresh,
    make,
    over_the_wire,
    propose,
)
from tests.unit.actors.exchange.helpers import wait_for

torch.set_num_threads(1)

DEPTH = 4
every = pytest.mark.parametrize("name", MECHANISMS)
KINDS = [
    "z-lab",
    "z-lab, windows",
    "DeepSpec rnn",
    "speculators DSpark, reduced",
    "EAGLE-3 speculators",
    "P-EAGLE speculators",
    "MTP DeepSeek, 3 stages",
]
"""One of each way to draft; the formats of one way differ in nothing the engine sees."""
SAMPLINGS = {
    "greedy": GREEDY,
    "coupled": SamplingParams(temperature=1.0, seed=7, max_tokens=64),
    "processed": SamplingParams(
        temperature=0.8,
        top_k=40,
        top_p=0.95,
        repetition_penalty=1.2,
        presence_penalty=0.3,
        logit_bias=((3, 2.0),),
        seed=2**63 + 5,
    ),
}


@every
@pytest.mark.parametrize("kind", ["greedy", "coupled"])
def test_drafting_over_commits_with_rejections_equals_a_fresh_pass_over_the_whole_prefix(
    name: str, kind: str
) -> None:
    """Sessions of different lengths in one batch, long prompts absorbed in parts, every accept
    length, rounds at D = 0."""
    assert_drafts_equal_those_of_a_fresh_pass(name, SAMPLINGS[kind])


@pytest.mark.parametrize("name", KINDS)
def test_penalties_and_cuts_are_applied_to_drafts_over_commits_as_in_a_fresh_pass(
    name: str,
) -> None:
    """Under penalties a draft depends on the drafts before it, whatever the mechanism."""
    assert_drafts_equal_those_of_a_fresh_pass(name, SAMPLINGS["processed"])


def assert_drafts_equal_those_of_a_fresh_pass(name: str, sampling: SamplingParams) -> None:
    rng = random.Random(1)
    drafter = make(name, prefill_rows=16)
    lengths = (2, 3, 11, 40, 90)  # two tokens are one row: the shortest context there is
    sessions = [
        Follower(drafter, f"r{n}", [rng.randrange(128) for _ in range(n)], sampling)
        for n in lengths
    ]
    drafter.open([s.opening() for s in sessions])
    for turn in range(DEPTH + 3):
        depths = {s.key: 0 if (turn + i) % 6 == 5 else DEPTH for i, s in enumerate(sessions)}
        blocks = propose(drafter, depths)
        commits = []
        for i, s in enumerate(sessions):
            found = blocks[s.key]
            assert len(found.tokens) == depths[s.key]
            if i == turn % len(sessions):  # a fresh drafter is dear: one session a turn
                assert_same_block(found, fresh(name, s, depths[s.key]))
            kept = (turn + i) % (DEPTH + 1)
            commits.append(s.commit([*found.tokens[:kept], rng.randrange(128)]))
        drafter.observe(commits)
    for s in sessions:
        assert_same_block(propose(drafter, {s.key: DEPTH})[s.key], fresh(name, s, DEPTH))


@every
def test_a_block_can_be_asked_for_again_at_any_depth_and_says_the_same(name: str) -> None:
    drafter = make(name)
    s = Follower(drafter, "r", [5, 17, 99, 3, 64])
    drafter.open([s.opening()])
    first = propose(drafter, {s.key: DEPTH})[s.key]
    for depth in (1, DEPTH, 2, DEPTH):
        again = propose(drafter, {s.key: depth})[s.key]
        assert_same_block(again, fresh(name, s, depth))
    assert again.tokens == first.tokens


@every
def test_one_sessions_block_does_not_depend_on_who_is_in_the_batch(name: str) -> None:
    drafter = make(name)
    s = Follower(drafter, "r", [5, 17, 99, 3, 64])
    others = [Follower(drafter, f"o{i}", [i, 9, 2 * i + 1], SAMPLED) for i in range(3)]
    drafter.open([s.opening(), *(o.opening() for o in others)])
    wanted = {s.key: 3} | {o.key: 1 + i for i, o in enumerate(others)}
    assert_same_block(propose(drafter, wanted)[s.key], fresh(name, s, 3))


@every
def test_where_laws_are_weighed_a_draft_comes_with_the_law_it_was_drawn_from(name: str) -> None:
    """S10, S16: in the target's ids, as many as were asked for whatever was drawn."""
    sampling = replace(SAMPLINGS["coupled"], stop_token_ids=frozenset(range(128)))
    drafter = make(name, rejection_sample_method="rejection")
    assert drafter.info.gives_law
    s = Follower(drafter, "r", [5, 17, 99, 3, 64], sampling)
    greedy = Follower(drafter, "g", [5, 17, 99, 3, 64])
    drafter.open([s.opening(), greedy.opening()])
    for _ in range(3):
        found = propose(drafter, {s.key: DEPTH})[s.key]
        assert_same_block(found, fresh(name, s, DEPTH, rejection_sample_method="rejection"))
        assert found.law is not None
        assert len(found.tokens) == len(found.law) == DEPTH
        for token, law in zip(found.tokens, found.law, strict=True):
            assert problem(law, token, 128) == ""
        drafter.observe([s.commit([*found.tokens[:2], 11])])
    assert propose(drafter, {greedy.key: DEPTH})[greedy.key].law is None


@every
def test_a_block_never_reaches_past_the_context_of_drafter_or_server(name: str) -> None:
    """S35."""
    drafter = make(name, max_context=12)
    s = Follower(drafter, "r", list(range(1, 10)))
    drafter.open([s.opening()])
    for length, most in ((9, 3), (10, 2), (11, 1), (12, 0), (13, 0)):
        assert len(s.tokens) == length
        assert len(drafter.propose([DraftRequest(s.key, DEPTH)])[0].tokens) == most
        drafter.observe([s.commit([length])])


@every
def test_features_that_do_not_fit_their_tokens_cost_their_session_alone(name: str) -> None:
    """S41."""
    drafter = make(name)
    good, bad = (Follower(drafter, n, [4, 8, 15, 16]) for n in ("good", "bad"))
    opening = bad.opening()
    assert opening.features is not None
    for wrong in (None, opening.features[:-1], opening.features[:, :-1]):
        with pytest.raises(DrafterError) as caught:
            drafter.open([good.opening(), replace(opening, features=wrong)])
        assert caught.value.keys == (bad.key,)
    assert_same_block(propose(drafter, {good.key: 2})[good.key], fresh(name, good, 2))


@every
def test_features_that_are_not_finite_fault_their_session_alone(name: str) -> None:
    """S51."""
    drafter = make(name)
    good, bad = (Follower(drafter, n, [4, 8, 15, 16]) for n in ("good", "bad"))
    opening = bad.opening()
    assert opening.features is not None
    drafter.open([good.opening(), replace(opening, features=opening.features * float("nan"))])
    with pytest.raises(DrafterError) as caught:
        drafter.propose([DraftRequest(good.key, 2), DraftRequest(bad.key, 2)])
    assert caught.value.keys == (bad.key,)
    assert_same_block(propose(drafter, {good.key: 2})[good.key], fresh(name, good, 2))


@every
def test_nothing_of_a_session_outlives_its_end(name: str) -> None:
    """L3, S40: the next session under the same request starts from nothing."""
    drafter = make(name)
    first = Follower(drafter, "r", [5, 17, 99, 3, 64])
    drafter.open([first.opening()])
    propose(drafter, {first.key: DEPTH})
    drafter.close(first.key)
    drafter.close(first.key)
    assert len(drafter.sessions) == 0
    second = Follower(drafter, "r", [7, 7, 7])
    drafter.open([second.opening()])
    assert_same_block(propose(drafter, {second.key: DEPTH})[second.key], fresh(name, second, DEPTH))


# -- through the engine ------------------------------------------------------------------------

PROMPTS = [[(5 * i + 2) % 128 for i in range(21)], [9, 2, 6], [5, 3, 5, 8], [2, 7]]


@functools.cache
def own_texts(sampling: SamplingParams) -> dict[str, list[int]]:
    """Standard decode of the prompts."""
    return {str(i): plain(target(), p, sampling) for i, p in enumerate(PROMPTS)}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("rule", ["greedy", "coupled"])
def test_co_located_the_text_is_the_targets_own(name: str, rule: str) -> None:
    """L1, also with prompts in chunks."""
    sampling = GREEDY if rule == "greedy" else SAMPLED
    own = own_texts(sampling)
    engine = make_engine(target(), make(name), DEPTH, max_rows=16, max_num_seqs=4)
    assert run(engine, *(request(str(i), p, sampling) for i, p in enumerate(PROMPTS))) == own
    assert engine.stats.drafted > 0
    assert_pools_full(engine)


@pytest.mark.parametrize(
    "name", ["DeepSpec vanilla", "z-lab", "EAGLE-3 speculators", "MTP DeepSeek"]
)
@pytest.mark.parametrize("rule", ["greedy", "coupled"])
def test_over_the_wire_the_text_is_the_same_also_when_a_drafter_is_lost(
    name: str, rule: str
) -> None:
    sampling = replace(GREEDY if rule == "greedy" else SAMPLED, max_tokens=40)
    own = own_texts(sampling)
    drafters = [make(name), make(name)]
    with over_the_wire(*drafters) as (engine, servers):
        for i, p in enumerate(PROMPTS):
            engine.add(request(str(i), p, sampling))
        texts: dict[str, list[int]] = {key: [] for key in own}
        before = 0
        while engine.has_work:
            for event in engine.step():
                texts[event.request_id].extend(event.tokens)
            if not before and engine.stats.drafted > 12:
                servers[0].stop(0.0)
                before = engine.stats.drafted
        assert texts == own
        assert engine.stats.drafted > before > 0  # the other took over, from features
        assert_pools_full(engine)
        wait_for(lambda: not len(drafters[1].sessions))
