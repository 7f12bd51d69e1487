"""The draft model where laws are weighed: it draws from the law it reports, and says nothing else
of its draws, neither by a block's length nor by its time."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from actors.contracts import DraftRequest, Proposal
from actors.drafters.external import ExternalDrafter
from actors.sampling.law import TokenLaw, problem
from actors.sampling.params import SamplingParams
from actors.sampling.rules import Rule
from tests.drafters.knowing import next_token_of
from tests.models import make_rand
from tests.unit.actors.drafters.builders import GREEDY, make_commit, make_key, make_open
from tests.unit.actors.drafters.test_external import PROMPT, make_external, make_perturbed

torch.set_num_threads(1)

RULES: tuple[Rule, ...] = ("rejection", "block")
SAMPLED = SamplingParams(temperature=0.9, repetition_penalty=1.2, seed=11, max_tokens=64)


def make_drawing(rule: Rule = "rejection", seed: int = 0, **config: object) -> ExternalDrafter:
    return make_external(make_rand(seed=seed, **config), rejection_sample_method=rule)


def propose(drafter: ExternalDrafter, depth: int) -> Proposal:
    return drafter.propose([DraftRequest(make_key(), depth)])[0]


def same(law: TokenLaw, other: TokenLaw) -> bool:
    same_ids = law.ids.tolist() == other.ids.tolist()
    return same_ids and bool(np.allclose(law.probs, other.probs, rtol=1e-5))


@pytest.mark.parametrize("rule", RULES)
def test_each_sampled_draft_comes_with_a_law_it_can_be_from(rule: Rule) -> None:
    drafter = make_drawing(rule)
    assert drafter.info.gives_law
    drafter.open([make_open(PROMPT, sampling=SAMPLED)])
    proposal = propose(drafter, 4)
    assert proposal.law is not None
    for law, token in zip(proposal.law, proposal.tokens, strict=True):
        assert problem(law, token, 128) == ""
    assert not make_external(make_rand()).info.gives_law


def test_drafts_at_the_drawn_rows_are_what_the_law_says() -> None:
    """Over 400 seeds the first draft's frequencies are the law of its row."""
    drafter = make_drawing()
    counts, laws = np.zeros(128), list[TokenLaw]()
    for seed in range(400):
        sampling = replace(SAMPLED, repetition_penalty=1.0, seed=seed)
        drafter.open([make_open(PROMPT, sampling=sampling)])
        proposal = propose(drafter, 1)
        counts[proposal.tokens[0]] += 1
        laws += proposal.law or ()
        drafter.close(make_key())
    assert all(same(law, laws[0]) for law in laws)
    q = np.zeros(128)
    q[laws[0].ids] = laws[0].masses
    spread = np.sqrt(400 * q * (1 - q))
    assert (np.abs(counts - 400 * q) <= 5 * spread + 2).all()
    assert counts.max() < 400  # it was drawn


def test_blocks_and_laws_from_incremental_state_equal_those_of_a_fresh_drafter() -> None:
    """I4 at every accept length, drafts wrong all the time, D changing from round to round."""
    rng = random.Random(5)
    target = next_token_of(make_rand(seed=0))
    config = {"rejection_sample_method": "rejection"}
    model = make_perturbed(make_rand(seed=0))
    drafter, fresh = make_external(model, **config), make_external(model, **config)
    tokens = [rng.randrange(128) for _ in range(9)]
    drafter.open([make_open(tokens, sampling=SAMPLED)])
    prompt = len(tokens)
    for _ in range(10):
        depth = rng.randrange(0, 5)
        got = propose(drafter, depth)
        session = make_open(tokens, sampling=SAMPLED)
        fresh.open([replace(session, prompt_len=prompt)])
        expected = propose(fresh, depth)
        assert got.tokens == expected.tokens
        pairs = zip(got.law or (), expected.law or (), strict=True)
        assert all(same(law, other) for law, other in pairs)
        kept = rng.randrange(len(got.tokens) + 1)
        emitted = [*got.tokens[:kept], target([*tokens, *got.tokens[:kept]], GREEDY)]
        drafter.observe([make_commit(len(tokens), *emitted)])
        tokens += emitted


def test_a_block_asked_for_again_is_the_same_and_at_another_length_another() -> None:
    drafter = make_drawing()
    drafter.open([make_open(PROMPT, sampling=SAMPLED)])
    first = propose(drafter, 4)
    assert propose(drafter, 4).tokens == first.tokens
    # The same first token committed: position by position the draws are new ones.
    drafter.observe([make_commit(len(PROMPT), first.tokens[0])])
    assert propose(drafter, 3).tokens != first.tokens[1:]


def test_an_end_token_does_not_end_a_drawn_block() -> None:
    """S16: a block that is short because of what is in it, or that comes sooner, gives it away."""
    ends = frozenset(range(128))  # whatever is drawn, it is an end
    sampled, greedy = replace(SAMPLED, stop_token_ids=ends), replace(GREEDY, stop_token_ids=ends)
    drafter = make_drawing()
    drafter.open([make_open(PROMPT, sampling=sampled)])
    assert len(propose(drafter, 4).tokens) == 4
    drafter.open([make_open(PROMPT, sampling=greedy, request="g")])
    block = drafter.propose([DraftRequest(make_key("g"), 4)])[0]
    assert len(block.tokens) == 1
    assert block.law is None


def test_sessions_of_both_kinds_share_a_batch() -> None:
    drafter, alone = make_drawing(), make_drawing()
    drafter.open([make_open(PROMPT, sampling=SAMPLED), make_open(PROMPT, request="g")])
    sampled, greedy = drafter.propose([DraftRequest(make_key(r), 3) for r in ("r", "g")])
    alone.open([make_open(PROMPT, sampling=SAMPLED)])
    assert sampled.tokens == propose(alone, 3).tokens
    assert sampled.law is not None
    assert greedy.law is None
