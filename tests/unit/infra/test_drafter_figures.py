"""What the measurements of learned drafters count, on made-up replays."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from actors.drafters.external_choose import Prefix
from actors.drafters.learned.words import Words
from actors.sampling.params import SamplingParams
from actors.training.examples import Example
from tests.unit.infra.scripts import INFRA, importable, module

FOLDER = INFRA / "bench"
GREEDY = SamplingParams(temperature=0.0)


@pytest.fixture(autouse=True)
def on_the_path() -> Iterator[None]:
    with importable(FOLDER):
        yield


def example(tokens: list[int], prompt_len: int = 2) -> Example:
    return Example(torch.tensor(tokens), prompt_len, "qa", torch.zeros(len(tokens) - 1, 4))


def test_a_tree_accepts_the_longest_path_that_the_text_takes() -> None:
    trees = module("trees")
    ranks = [[(0, 0, 1), (1, 0, 0), (2, 0, 0), (0, -1, 0), ()]]
    tree = frozenset([(0,), (1,), (0, 0), (1, 0)])
    assert trees.accepted(ranks, tree) == [[2, 2, 0, 1, 0]]
    assert trees.accepted(ranks, trees.chain(3)) == [[2, 0, 0, 1, 0]]


def test_the_best_tree_has_the_likeliest_paths_and_each_with_its_beginnings() -> None:
    trees = module("trees")
    ranks = [[(0, 0)] * 5 + [(1, 3)] * 4 + [(0, 1)] * 2 + [(-1, 0)] * 9 + [(9, 0)] * 9]
    assert trees.best_tree(ranks, 3) == {(0,), (0, 0), (1,)}
    assert trees.best_tree(ranks, 4) == {(0,), (0, 0), (1,), (1, 3)}
    for nodes in range(1, 6):
        assert all(
            path[:-1] in trees.best_tree(ranks, nodes) or len(path) == 1
            for path in trees.best_tree(ranks, nodes)
        )


def test_a_led_drafter_follows_the_text_and_notes_each_tokens_rank() -> None:
    trees = module("trees")
    text = example([3, 1, 2, 0, 1])
    led = trees.Led(Words(4, torch.tensor([0, 2, 3])), [text])
    logits = torch.tensor([[0.1, 0.9, 0.5]])  # ids 0, 2, 3
    after = [Prefix([3, 1, 2], 2, GREEDY, 3)]
    assert led.next(logits, after) == [(0, None)]  # the text's, not the likeliest
    assert led.next(logits, [Prefix([3, 1, 2, 0], 2, GREEDY, 3)]) == [(1, None)]
    assert led.next(logits, [Prefix([3, 1, 2, 0, 1], 2, GREEDY, 3)]) == [(0, None)]
    assert led.ranks[(3, 1)][3] == [2, -1]  # third of three; unknown; behind the end nothing


def test_a_lagging_block_is_compared_with_the_fresh_one_at_the_same_place() -> None:
    lag = module("lag")
    # Anchors 0 … 4; a chain of 4 right at 0 leaves 2 behind a lag of 2, where a fresh one has 3.
    chains = [[4, 1, 3, 2, 0]]
    found, share = lag.tally(chains, chains, 2)
    assert (found.places, found.lagging, found.fresh) == (2, 2 + 1, 3 + 0)
    assert share == pytest.approx(2 / 3)
    assert found.cells() == ["1.50", "1.50", "1.00"]


def test_a_drafter_that_is_told_takes_the_text_for_as_many_drafts_and_then_its_own() -> None:
    lag = module("lag")
    told = lag.Told(Words(4, None), [example([3, 1, 2, 0, 1, 3])], 2)
    logits = torch.tensor([[0.0, 0.0, 9.0, 0.0]])

    def after(*tokens: int) -> Any:
        return told.next(logits, [Prefix(list(tokens), 2, GREEDY, 3)])[0][0]

    assert [after(3, 1, 2), after(3, 1, 2, 0), after(3, 1, 2, 0, 1)] == [0, 1, 2]


def test_features_arrive_as_they_would_over_the_wire() -> None:
    features, form = module("features"), __import__("actors.exchange.form", fromlist=["form"])
    rows = torch.randn(5, 128).bfloat16()
    held = Example(torch.arange(6), 2, "qa", torch.cat((torch.zeros_like(rows), rows), 1))
    columns = list(range(128, 256))
    (plain,) = features.arriving([held], form.FeatureForm(), columns)
    assert torch.equal(plain.features, rows)
    (packed,) = features.arriving([held], form.FeatureForm(dtype="fp8"), columns)
    assert packed.features.dtype is torch.bfloat16
    assert packed.features.shape == rows.shape
    assert not torch.equal(packed.features, rows)
    torch.testing.assert_close(packed.features.float(), rows.float(), rtol=1 / 15, atol=0.02)


def test_a_long_prompts_report_compares_turn_by_turn_and_counts_gaps_of_its_own_time() -> None:
    script = module("long_prompt")
    events: list[list[Any]] = []

    class Engine:
        def step(self) -> list[Any]:
            return events.pop(0)

    clock = script.Clock(Engine())
    clock.at = {"s": [1.0, 2.0, 4.0, 7.0], "t": [1.5, 2.5]}
    assert clock.gaps(["s", "t"], 2.0, 4.0) == (2.0, 1.0)
    turns = {
        leg: [script.Turn(ttft_s, (0.02,), (0.05, 0.2, 0.3), cold, leg != "standard")]
        for leg, ttft_s, cold in (
            ("standard", 10.0, 0),
            ("colocated", 11.0, 4),
            ("remote", 10.2, 6),
        )
    }
    options = SimpleNamespace(tokens=7500, rounds=1, mechanism="eagle3", threads=2)
    rows = [line for line in script.report(turns, options) if line.startswith("| ")]
    assert rows[2].startswith(
        "| standard | 10.00 | 1.000 (1.000) | 20 | 200 | 200 | 300 | 0 | 0 of"
    )
    assert "| colocated | 11.00 | 1.100 (1.100) |" in rows[3]
    assert rows[4].endswith("| 6 | 1 of 1 |")
