"""A run that was stopped ends as one that was not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from actors.training.averaged import Averaged
from actors.training.block_trainee import BlockTrainee, BlockTraining
from actors.training.checkpoint import NAME
from actors.training.errors import TrainingError
from actors.training.examples import balanced, batches, prompt_texts
from actors.training.laws import TargetLaw
from actors.training.loop import CURVE, Hooks, Loop, LoopOptions
from tests.unit.actors.training.small import block_spec, example, parts

DRAFT_IDS = torch.arange(0, 40, 2)
TRAIN = [example(10 + i, 3, i) for i in range(5)]
VALID = [example(12, 4, 9)]


def make_loop(folder: Path, steps: int | None = None, rank: int = 4, **changes) -> Loop:
    """One that stops after `steps` steps of this run."""
    torch.manual_seed(0)
    law = TargetLaw.of(parts(), DRAFT_IDS)
    spec = block_spec(next_token=True)
    made = BlockTrainee(spec, parts(), law, rank, BlockTraining(anchors=4, sizes=(3, 2)))
    taken = [0]

    def counted(_report) -> None:
        taken[0] += 1

    hooks = Hooks(on_step=counted, stop=lambda: steps is not None and taken[0] >= steps)
    options = LoopOptions(budget_s=1e9, anchors=8, cooldown=0.0, warmup_steps=2, **changes)
    return Loop(made, TRAIN, VALID, folder, options, hooks)


def weights(loop: Loop) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in loop._trainee.module.named_parameters()}


@pytest.mark.parametrize("muon", [False, True])
def test_a_run_that_is_stopped_and_resumed_ends_in_the_same_weights(muon: bool, tmp_path) -> None:
    """Bit for bit: optimizer, average, order of the answers and drawn anchors go on."""
    whole = make_loop(tmp_path / "whole", 9, muon=muon)
    whole.run()
    for steps in (2, 4, 3):
        last = make_loop(tmp_path / "parts", steps, muon=muon)
        last.run()
    assert last.resumed
    assert last.state.step == whole.state.step == 9
    assert (last.state.epoch, last.state.batch) == (whole.state.epoch, whole.state.batch)
    for name, expected in weights(whole).items():
        assert torch.equal(weights(last)[name], expected), name
        assert torch.equal(last._averaged.weights[name], whole._averaged.weights[name]), name


def test_an_exception_loses_no_step_that_was_taken(tmp_path) -> None:
    loop = make_loop(tmp_path, 100)
    seen = []

    def fail(report) -> None:
        seen.append(report.state.step)
        if len(seen) == 3:
            raise KeyboardInterrupt

    loop._hooks = Hooks(on_step=fail)
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    assert make_loop(tmp_path).state.step == 3


def test_a_checkpoint_of_another_shape_is_refused(tmp_path) -> None:
    make_loop(tmp_path, 1).run()
    with pytest.raises(TrainingError, match=NAME):
        make_loop(tmp_path, 1, rank=2)


def test_the_curve_has_a_line_for_each_validation_with_the_averaged_weights(tmp_path) -> None:
    loop = make_loop(tmp_path, 2)
    loop.run()
    with loop._averaged.swapped_in():
        right = loop._trainee.right(VALID)
    (line,) = [json.loads(x) for x in (tmp_path / CURVE).read_text().splitlines()]
    assert line["positions"] == loop.state.positions > 0
    assert line["survival"][0] == pytest.approx(sum(r >= 1 for r in right[0]) / len(right[0]))


def test_the_learning_rate_warms_up_and_falls_to_zero_at_the_end_of_the_budget(tmp_path) -> None:
    loop = make_loop(tmp_path)
    loop._options = LoopOptions(budget_s=100.0, warmup_steps=4, cooldown=0.5)
    rates = []
    for step, wall in ((0, 0.0), (3, 1.0), (50, 50.0), (80, 75.0), (99, 100.0)):
        loop.state.step, loop.state.wall_s = step, wall
        rates.append(loop._rate())
    assert rates == pytest.approx([0.25, 1.0, 1.0, 0.5, 0.0])


def test_the_average_is_of_the_weights_and_swapping_it_in_is_undone() -> None:
    module = torch.nn.Linear(2, 2)
    averaged = Averaged(module, 0.5)
    before = module.weight.detach().clone()
    with torch.no_grad():
        module.weight.add_(1.0)
    averaged.update()  # a young average forgets faster: decay 2/11
    torch.testing.assert_close(averaged.weights["weight"], before + 1 - 2 / 11)
    with averaged.swapped_in():
        torch.testing.assert_close(module.weight.detach(), before + 1 - 2 / 11)
    torch.testing.assert_close(module.weight.detach(), before + 1)


def test_an_epoch_shows_every_answer_once_and_validation_is_balanced() -> None:
    import random

    batch = list(batches(TRAIN, 8, random.Random(0)))
    assert sorted(id(e) for b in batch for e in b) == sorted(id(e) for e in TRAIN)
    assert all(sum(e.anchors for e in b) >= 8 for b in batch[:-1])
    assert [e.category for e in balanced(TRAIN, 4)] == ["a", "b", "a", "b"]


def test_a_prompt_as_an_answer_has_the_prompts_tokens_and_rows_alone() -> None:
    examples = [example(60, 50, 0), example(60, 20, 1), example(60, 50, 2)]
    first, second = prompt_texts(examples, 1.0)
    assert (first.length, first.prompt_len, first.anchors) == (50, 32, 17)
    assert torch.equal(first.tokens, examples[0].tokens[:50])
    assert torch.equal(second.features, examples[2].features[:49])
    assert len(prompt_texts(examples, 0.5)) == 1
