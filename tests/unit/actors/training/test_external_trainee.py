"""An external draft model in training drafts what it drafts when serving, and learns."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from actors.drafters.config import DrafterConfig
from actors.drafters.learned.target_parts import target_parts
from actors.drafters.table import build_drafter
from actors.training.cut import plan_cut
from actors.training.errors import TrainingError
from actors.training.examples import Example
from actors.training.export import export
from actors.training.external_trainee import ExternalTrainee, ExternalTraining, row_weights
from actors.training.loop import Loop, LoopOptions
from actors.training.losses import LossWeights
from actors.training.mechanisms import Shape, build
from actors.training.replaying import right_drafts
from tests.unit.actors.training.small_target import (
    TAPS,
    VOCAB,
    saved_target,
    small_target,
    written,
)

DEPTH = 4
CUTS = ((), (0, 3, 7), (0, 1, 7))
FREQUENT = torch.tensor([token for token in range(VOCAB) if token % 5])


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    saved_target(folder)
    return folder


@pytest.fixture(scope="module")
def texts() -> list[Example]:
    model = small_target()
    return [written(model, 36, 60, 0), written(model, 40, 56, 1)]


def trainee(
    target: Path, cut: tuple[int, ...] = (), ids: torch.Tensor | None = None, **training: object
) -> ExternalTrainee:
    parts = target_parts(target, torch.float32)
    options = ExternalTraining(**{"columns": 0, **training})  # type: ignore[arg-type]
    made = build(
        "external",
        parts,
        torch.arange(VOCAB) if ids is None else ids,
        Shape(drafts=DEPTH, cut=cut, external=options),
    )
    assert isinstance(made, ExternalTrainee)
    return made


def lessons(made: ExternalTrainee, texts: list[Example], steps: int) -> None:
    optimizer = torch.optim.AdamW(made.module.parameters(), lr=3e-3, weight_decay=0.0)
    for step in range(steps):
        optimizer.zero_grad()
        made.loss(texts, random.Random(step)).loss.backward()
        optimizer.step()


def accepted(made: ExternalTrainee, texts: list[Example]) -> int:
    return sum(sum(right) for right in made.right(texts))


@pytest.mark.parametrize("cut", CUTS)
def test_a_trained_one_drafts_better_than_the_cut_one(
    cut: tuple[int, ...], target: Path, texts: list[Example]
) -> None:
    torch.manual_seed(0)
    made = trainee(target, cut)
    before = accepted(made, texts)
    lessons(made, texts, 60)
    assert accepted(made, texts) > max(20, 4 * before)


def test_kept_layers_are_not_trained(target: Path) -> None:
    made = trainee(target)
    names = [name for name, _ in made.module.named_parameters()]
    assert {name.split(".")[2] for name in names if "layers" in name} == {"2", "3", "4"}
    assert "model.norm.weight" in names
    assert not any("embed" in name or "head" in name for name in names)


def test_prompts_weigh_less_and_what_a_template_begins_with_nothing() -> None:
    example = Example(torch.zeros(44, dtype=torch.long), 40, "a", torch.zeros(43, 1))
    assert row_weights(example, 0.25).tolist() == [0.0] * 32 + [0.25] * 8 + [1.0] * 3
    short = Example(torch.zeros(8, dtype=torch.long), 4, "a", torch.zeros(7, 1))
    assert row_weights(short, 0.25).tolist() == [0.0] * 4 + [1.0] * 3


def test_each_row_is_held_against_the_targets_own_law_there(
    target: Path, texts: list[Example]
) -> None:
    """Told by a model that is the target: nothing is left to learn but the law's own entropy."""
    made = trainee(target, tuple(range(8)), prompt_weight=0.0)
    model = small_target()
    with torch.no_grad():
        dict(made.module.named_parameters())["model.norm.weight"].copy_(made.parts.norm)
        logits = [model(e.tokens[None, :-1], use_cache=False).logits[0] for e in texts]
    rows = torch.cat([x[e.prompt_len :] for x, e in zip(logits, texts, strict=True)])
    entropy = torch.distributions.Categorical(logits=rows).entropy().mean()
    step = made.loss(texts, random.Random(0))
    torch.testing.assert_close(step.loss, entropy, atol=1e-4, rtol=1e-4)
    assert step.positions == sum(e.anchors for e in texts)
    assert step.figures["top1"] == 1.0


def test_the_loss_within_all_columns_is_the_loss_within_the_vocabulary(
    target: Path, texts: list[Example]
) -> None:
    whole = trainee(target).loss(texts, random.Random(0)).loss
    made = trainee(target, columns=20 * VOCAB)
    made.look_back(texts)
    torch.testing.assert_close(made.loss(texts, random.Random(0)).loss, whole)


def test_a_states_own_distance_can_be_a_part_of_the_loss(
    target: Path, texts: list[Example]
) -> None:
    plain = trainee(target).loss(texts, random.Random(0)).loss
    terms = LossWeights(ce=0.0, kl=1.0, tv=0.0, state=0.5)
    assert trainee(target, terms=terms).loss(texts, random.Random(0)).loss > plain


@pytest.mark.parametrize(
    ("layout", "ids"), [("shared", None), ("shared", FREQUENT), ("transformers", None)]
)
@pytest.mark.parametrize("cut", CUTS)
def test_an_exported_one_drafts_when_serving_what_it_drafted_in_training(
    cut: tuple[int, ...],
    layout: str,
    ids: torch.Tensor | None,
    target: Path,
    texts: list[Example],
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    made = trainee(target, cut, ids)
    lessons(made, texts, 40)
    with torch.no_grad():  # what a file in bf16 can say
        for parameter in made.module.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    written_to(made, tmp_path, layout)
    drafter = build_drafter(
        DrafterConfig(
            "draft_model",
            model=str(tmp_path),
            target=str(target),
            target_tokenizer=str(target),
            target_vocab_size=VOCAB,
            num_speculative_tokens=DEPTH,
            dtype="float32",
        )
    )
    right = made.right(texts)
    assert sum(map(sum, right)) > 20
    assert right_drafts(drafter, texts, TAPS, DEPTH) == right


def written_to(made: ExternalTrainee, folder: Path, layout: str = "") -> None:
    export(
        made,
        folder,
        target_name="tiny",
        target_config=made.parts.config,
        head=made.parts.head,
        draft_ids=torch.arange(VOCAB),
        layout=layout,
    )


def test_a_shared_file_has_what_was_trained_alone_and_says_of_whom_the_rest_is(
    target: Path, tmp_path: Path
) -> None:
    made = trainee(target)
    written_to(made, tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert set(stored) == {name for name, _ in made.module.named_parameters()}
    assert {t.dtype for t in stored.values()} == {torch.bfloat16}
    said = json.loads((tmp_path / "config.json").read_text())
    assert said["num_hidden_layers"] == 5
    assert said["shared_with_target"]["weights"] == made.parts.digest
    assert said["shared_with_target"]["layers"] == 2


def test_of_a_reduced_head_the_file_says_which_tokens_and_they_alone_are_drafted(
    target: Path, texts: list[Example], tmp_path: Path
) -> None:
    few = torch.tensor([3, 7, 8, 40])
    made = trainee(target, (0, 1, 7), few)
    written_to(made, tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert (torch.arange(4) + stored["d2t"]).tolist() == few.tolist()
    whole = trainee(target, (0, 1, 7))
    whole.module.load_state_dict(made.module.state_dict())
    for example, few_right, right in zip(texts, made.right(texts), whole.right(texts), strict=True):
        following = example.tokens[example.prompt_len + 1 :].tolist()
        for token, with_few, with_all in zip(following, few_right, right, strict=True):
            # What is the whole vocabulary's best is the best of any part it is in.
            assert with_few >= 1 or not with_all or token not in few.tolist()
            assert not with_few or token in few.tolist()


def test_a_reduced_head_is_written_whatever_device_new_tensors_come_to(
    target: Path, tmp_path: Path
) -> None:
    """A run on a GPU has that for its default."""
    few = torch.tensor([3, 7, 8, 40])
    made = trainee(target, (0, 1, 7), few)
    with torch.device("meta"):
        written_to(made, tmp_path)
    assert (torch.arange(4) + load_file(tmp_path / "model.safetensors")["d2t"]).equal(few)


def test_a_whole_one_is_a_model_of_transformers_with_the_targets_tokenizer(
    target: Path, texts: list[Example], tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    made = trainee(target, (0, 1, 7))
    with torch.no_grad():
        for parameter in made.module.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    written_to(made, tmp_path, "transformers")
    model, facts = AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, output_loading_info=True
    )
    assert not facts["missing_keys"]
    assert not facts["unexpected_keys"]
    with torch.no_grad():
        logits = model(texts[0].tokens[None, :-1]).logits[0]
        ours = made.states(texts[:1]) @ made.parts.head.T
    torch.testing.assert_close(logits, ours, atol=1e-3, rtol=1e-4)
    assert AutoTokenizer.from_pretrained(tmp_path).get_vocab()


def test_a_run_that_was_ended_goes_on_with_what_it_had(
    target: Path, texts: list[Example], tmp_path: Path
) -> None:
    options = LoopOptions(budget_s=0.2, anchors=8, muon=True)
    first = trainee(target)
    state = Loop(first, texts, texts[:1], tmp_path, options).run()
    second = trainee(target)
    again = Loop(second, texts, texts[:1], tmp_path, options)
    assert again.resumed
    assert again.state.step == state.step > 0
    for one, other in zip(first.module.parameters(), second.module.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_state_that_was_not_recorded_is_refused(target: Path) -> None:
    parts = target_parts(target, torch.float32)
    cut = plan_cut((0, 1, 2, 3, 7), 8, (4, 8))
    with pytest.raises(TrainingError, match="hidden state 4"):
        ExternalTrainee(parts, cut, (2, 8))
