"""Which positions of an example chains begin at."""

from __future__ import annotations

import random
from dataclasses import replace

import torch

from actors.training.chain_rows import PART, TEMPLATE, choose, lay_out, met_again
from actors.training.examples import Example
from tests.unit.actors.training.small import example


def texted(tokens: list[int], prompt_len: int) -> Example:
    """An example of that text."""
    return replace(example(len(tokens), prompt_len, 0), tokens=torch.tensor(tokens))


def test_all_of_a_short_answer_and_a_stretch_of_its_prompt_are_begun_at() -> None:
    e = texted(list(range(TEMPLATE + 60)), TEMPLATE + 40)
    found = choose(e, 100, 8, random.Random(0)).tolist()
    prompt, own = found[:8], found[8:]
    assert prompt == list(range(prompt[0], prompt[0] + 8))
    assert prompt[0] >= TEMPLATE
    assert prompt[-1] < e.prompt_len
    assert own == list(range(e.prompt_len, e.length - 1))


def test_pairs_that_stood_together_before_are_found_wherever_they_are() -> None:
    assert met_again(torch.tensor([5, 6, 7, 5, 6, 6, 7, 5])) == [4, 6, 7]
    assert met_again(torch.tensor([1, 2, 3])) == []
    assert met_again(torch.tensor([1])) == []


def test_half_of_a_prompts_anchors_are_where_its_text_says_something_again() -> None:
    said = list(range(100, 140))
    e = texted([*range(TEMPLATE), *said, *range(200, 260), *said, *range(300, 400)], 400)
    e = replace(e, prompt_len=260)
    again = set(met_again(e.tokens[:260]))
    assert again == set(range(TEMPLATE + 101, TEMPLATE + 140))
    found = [i for i in choose(e, 1, 16, random.Random(0)).tolist() if i < 260]
    assert found == sorted(set(found))
    assert len(again & set(found)) >= 8
    assert len(found) <= 16


def test_of_a_short_prompt_no_more_than_a_part_is_begun_at() -> None:
    e = texted(list(range(TEMPLATE + 60)), TEMPLATE + 40)
    found = choose(e, 100, 64, random.Random(0))
    assert int((found < e.prompt_len).sum()) == 40 // PART


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
