"""Which positions of an example chains begin at."""

from __future__ import annotations

import random

import torch

from actors.training.chain_rows import TEMPLATE, choose, lay_out
from tests.unit.actors.training.small import example


def test_all_of_a_short_answer_and_a_stretch_of_its_prompt_are_begun_at() -> None:
    e = example(TEMPLATE + 40, TEMPLATE + 20, 0)
    found = choose(e, 100, 8, random.Random(0)).tolist()
    prompt, own = found[:8], found[8:]
    assert prompt == list(range(prompt[0], prompt[0] + 8))
    assert prompt[0] >= TEMPLATE
    assert prompt[-1] < e.prompt_len
    assert own == list(range(e.prompt_len, e.length - 1))


def test_a_prompt_of_template_alone_has_no_anchors() -> None:
    e = example(20, 10, 0)
    assert choose(e, 4, 8, random.Random(0)).shape == (4,)
    assert int(choose(e, 4, 8, random.Random(0))[0]) >= e.prompt_len


def test_anchors_of_several_examples_keep_their_own_rows_and_tokens() -> None:
    examples = [example(12, 4, 0), example(9, 2, 1)]
    starts = lay_out(examples, [torch.tensor([2, 5]), torch.tensor([3])], prompt_weight=0.25)
    assert starts.tokens[starts.at].tolist() == [
        *examples[0].tokens[[2, 5]].tolist(),
        int(examples[1].tokens[3]),
    ]
    rows = torch.cat([e.features for e in examples])
    assert torch.equal(rows[starts.rows[2]], examples[1].features[3])
    assert starts.left.tolist() == [9, 6, 5]
    assert starts.weights.tolist() == [0.25, 1.0, 1.0]
    assert [(s.row, s.rows) for s in starts.spans] == [(0, 10), (10, 7)]
