"""Chains in training are the chains that are drafted."""

from __future__ import annotations

import random

import pytest
import torch

from actors.drafters.external_kv import SessionKV, Span
from actors.drafters.learned.attend import Causal
from actors.drafters.learned.eagle_model import EagleSpec
from actors.drafters.learned.mtp_model import MtpSpec
from actors.training.chain_models import EagleChain, MtpChain
from actors.training.chain_rows import lay_out
from actors.training.chain_trainee import Chains, ChainTrainee, ChainTraining
from actors.training.examples import Example
from actors.training.laws import TargetLaw
from actors.training.losses import LossWeights
from actors.training.packing import all_anchors
from tests.unit.actors.training.small import HIDDEN, LAYER, TAPS, example, parts, randomised

DRAFT_IDS = torch.arange(0, 40, 2)
STEPS = 3
MODELS = ("eagle3", "eagle3-normed", "mtp", "mtp-hidden-first")


def trainee(name: str) -> ChainTrainee:
    law = TargetLaw.of(parts(), DRAFT_IDS)
    if name.startswith("eagle3"):
        normed = name.endswith("normed")
        chain = EagleChain(
            EagleSpec(
                LAYER,
                1,
                TAPS,
                HIDDEN,
                len(DRAFT_IDS),
                fc_norm=normed,
                norm_output=normed,
                norm_before_residual=normed,
            )
        )
    else:
        chain = MtpChain(MtpSpec(LAYER, 1, 3, hidden_first=name.endswith("first")), parts().norm)
    randomised(chain.module)
    return ChainTrainee("any", chain, parts(), law, STEPS, ChainTraining(steps=STEPS))


def drafted_alone(made: ChainTrainee, e: Example, anchor: int) -> list[torch.Tensor]:
    """One chain as a drafter makes it: true entries before the anchor in a session's KV, then one
    row a step; what the head reads."""
    model, table, kv = made.model, parts().embedding, SessionKV()
    first = model.first(e.features[:anchor, model.columns].float())
    attend = Causal([Span(kv, 0, 0, anchor)])
    state, out = model.step(table[e.tokens[1 : anchor + 1]], first, torch.arange(anchor), attend)
    state, outs = state[-1:], [out[-1]]
    for s in range(1, STEPS):
        if anchor + s >= e.length:
            break
        attend = Causal([Span(kv, anchor + s - 1, 0, 1)])
        at = torch.tensor([anchor + s - 1])
        state, out = model.step(table[e.tokens[anchor + s]][None], state, at, attend)
        outs.append(out[0])
    return outs


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_a_chain_in_training_is_the_chain_that_a_drafter_makes(name: str) -> None:
    """Causal over true entries, and of the steps before its own anchor's alone; also where others
    of the batch have ended."""
    made = trainee(name)
    examples = [example(12, 4, 0), example(9, 2, 1)]
    starts = lay_out(examples, [all_anchors(e) for e in examples])
    chains = Chains(made.model, parts().embedding, examples, starts)
    expected = [drafted_alone(made, e, a) for e in examples for a in all_anchors(e).tolist()]
    for s in range(STEPS):
        for chain, hidden in zip(chains.going.tolist(), chains.step(), strict=True):
            torch.testing.assert_close(hidden, expected[chain][s], atol=1e-4, rtol=1e-4)
        odd = (chains.going + s) % 4 != 0  # some end at every step
        assert chains.keep(odd) == bool(len(chains.going))
    assert 0 < len(chains.going) < len(expected)


def test_a_chain_ends_with_its_text() -> None:
    made, e = trainee("eagle3"), example(8, 4, 0)
    chains = Chains(made.model, parts().embedding, [e], lay_out([e], [all_anchors(e)]))
    lengths = []
    while len(chains.going):
        lengths.append(len(chains.step()))
        chains.keep(torch.ones(len(chains.going), dtype=torch.bool))
    assert lengths == [3, 2, 1]  # anchors 4, 5 and 6 of tokens 0 … 7


def test_each_draft_is_held_against_the_law_and_the_text_behind_it() -> None:
    made, e = trainee("eagle3"), example(12, 4, 0)
    chains = Chains(made.model, parts().embedding, [e], lay_out([e], [torch.tensor([5, 7])]))
    for s in range(2):
        chains.step()
        assert chains.rows.tolist() == [5 + s, 7 + s]
        assert chains.following.tolist() == e.tokens[[6 + s, 8 + s]].tolist()
        chains.keep(torch.ones(2, dtype=torch.bool))


@pytest.mark.parametrize("name", MODELS)
def test_a_few_steps_learn_an_answer_by_heart(name: str) -> None:
    torch.manual_seed(0)
    made, e = trainee(name), example(12, 4, 0)
    e = Example(e.tokens // 2 * 2, e.prompt_len, e.category, e.features)
    made.training = ChainTraining(steps=STEPS, columns=0, terms=LossWeights(1, 0, 0, 0))
    optimizer = torch.optim.AdamW(made.module.parameters(), lr=2e-2)
    for step in range(80):
        optimizer.zero_grad()
        made.loss([e], random.Random(step)).loss.backward()
        optimizer.step()
    assert made.right([e]) == [[min(STEPS, 11 - anchor) for anchor in range(4, 11)]]


def test_the_loss_within_all_columns_is_the_loss_within_the_vocabulary() -> None:
    """Of which the draft vocabulary of this one is the half."""
    made, examples = trainee("mtp"), [example(12, 4, 0), example(9, 2, 1)]
    made.training = ChainTraining(steps=STEPS, columns=4 * len(parts().embedding))
    some = made.loss(examples, random.Random(0)).loss
    made.law = TargetLaw.of(parts(), torch.arange(len(parts().embedding)))
    made.training = ChainTraining(steps=STEPS, columns=0)
    torch.testing.assert_close(made.loss(examples, random.Random(0)).loss, some)
