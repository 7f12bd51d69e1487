"""Blocks in training are the blocks that are drafted."""

from __future__ import annotations

import random

import pytest
import torch

from actors.drafters.external_kv import SessionKV, Span
from actors.drafters.learned.attend import Block
from actors.training.block_trainee import BlockTrainee, BlockTraining
from actors.training.examples import Example
from actors.training.laws import TargetLaw
from actors.training.losses import LossWeights
from actors.training.packing import answer_states, pack
from tests.unit.actors.training.small import HIDDEN, TAPS, block_spec, example, parts, randomised

DRAFT_IDS = torch.arange(0, 40, 2)
DRAFTS = 3


def trainee(*, next_token: bool, rank: int = 4, causal: bool = False) -> BlockTrainee:
    made = BlockTrainee(
        block_spec(next_token=next_token, causal=causal),
        parts(),
        TargetLaw.of(parts(), DRAFT_IDS),
        rank,
        BlockTraining(sizes=(DRAFTS,)),
    )
    randomised(made.module)
    return made


def drafted_alone(made: BlockTrainee, e: Example, anchor: int) -> torch.Tensor:
    """One block as a drafter makes it: context of the rows before the anchor in a session's KV."""
    model = made.module
    width = len(TAPS) * HIDDEN
    context = model.context(e.features[:anchor, :width].float())
    kv = SessionKV()
    for layer, (keys, values) in enumerate(model.context_kv(context, torch.arange(anchor))):
        kv.write(layer, 0, keys.transpose(0, 1), values.transpose(0, 1))
    slots = made.spec.block
    ids = torch.full((slots,), made.spec.mask_token)
    ids[0] = e.tokens[anchor]
    attend = Block([Span(kv, anchor, 0, slots)], made.spec.masks)
    hidden = model(parts().embedding[ids], torch.arange(anchor, anchor + slots), attend)
    return hidden if made.spec.next_token else hidden[1:]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("next_token", [True, False])
@torch.no_grad()
def test_a_block_in_training_is_the_block_that_a_drafter_makes(
    next_token: bool, causal: bool
) -> None:
    """All anchors of several answers at once equal one anchor alone over its session's KV."""
    made = trainee(next_token=next_token, causal=causal)
    examples = [example(12, 4, 0), example(9, 2, 1)]
    chosen = [torch.arange(e.prompt_len, e.length - 1) for e in examples]
    packed = pack(examples, chosen, DRAFTS)
    hidden = iter(made._hidden(examples, packed, DRAFTS))
    for e, anchors in zip(examples, chosen, strict=True):
        for anchor in anchors.tolist():
            expected = drafted_alone(made, e, anchor)
            torch.testing.assert_close(next(hidden), expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_a_slot_is_compared_with_the_law_after_the_text_before_it() -> None:
    made = trainee(next_token=True)
    examples = [example(12, 4, 0), example(9, 2, 1)]
    chosen = [torch.arange(e.prompt_len, e.length - 1) for e in examples]
    packed = pack(examples, chosen, DRAFTS)
    laws = made.law(answer_states(examples, made.law, HIDDEN))
    row = 0
    for e, anchors in zip(examples, chosen, strict=True):
        for anchor in anchors.tolist():
            for k in range(DRAFTS):
                at = anchor + k
                assert bool(packed.valid[row, k]) == (at <= e.length - 2)
                if packed.valid[row, k]:
                    assert packed.tokens[row, k + 1] == e.tokens[at + 1]
                    expected = made.law(made.law.states(e.features[at : at + 1, -HIDDEN:]))[0]
                    torch.testing.assert_close(laws[packed.rows[row, k]], expected)
            row += 1


@torch.no_grad()
def test_right_drafts_are_counted_against_the_text() -> None:
    """With the Markov head in the loop, draft after draft."""
    made = trainee(next_token=True)
    e = example(12, 4, 0)
    markov = made.module.markov_head
    expected = []
    for anchor in range(4, 11):
        before, count = e.tokens[anchor], 0
        for k, hidden in enumerate(drafted_alone(made, e, anchor)):
            row = made.law.head @ hidden + markov.markov_w2(markov.markov_w1(before))
            before = DRAFT_IDS[row.argmax()]
            if anchor + k + 1 >= e.length or before != e.tokens[anchor + k + 1]:
                break
            count += 1
        expected.append(count)
    assert made.right([e]) == [expected]


@pytest.mark.parametrize("next_token", [True, False])
def test_a_few_steps_learn_an_answer_by_heart(next_token: bool) -> None:
    torch.manual_seed(0)
    made = trainee(next_token=next_token, rank=4 if next_token else 0)
    e = example(12, 4, 0)
    e = Example(e.tokens // 2 * 2, e.prompt_len, e.category, e.features)  # all can be drafted
    made.training = BlockTraining(sizes=(DRAFTS,), terms=LossWeights(1, 0, 0, 0))
    optimizer = torch.optim.AdamW(made.module.parameters(), lr=3e-2)
    for step in range(60):
        optimizer.zero_grad()
        made.loss([e], random.Random(step)).loss.backward()
        optimizer.step()
    text = [min(DRAFTS, 11 - anchor) for anchor in range(4, 11)]
    assert made.right([e]) == [text]
