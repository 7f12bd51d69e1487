"""What is exported loads as any public checkpoint does, and drafts what the trainee drafts."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from actors.contracts import Drafter, DraftRequest, OpenSession, SessionKey
from actors.drafters.config import DrafterConfig
from actors.drafters.learned.target_parts import target_parts
from actors.drafters.table import build_drafter
from actors.training.errors import TrainingError
from actors.training.examples import Example
from actors.training.export import LAYOUTS, export
from actors.training.mechanisms import Shape, build, default_taps
from actors.training.replaying import GREEDY, _columns, right_drafts
from tests.models import make_rand, save_tiny
from tests.unit.actors.training.small import randomised

LAYERS, HIDDEN, VOCAB, DEPTH = 8, 64, 128, 4
DRAFT_IDS = torch.arange(0, VOCAB, 2)
SCALE = 2.0 ** (torch.arange(4 * HIDDEN) % 5 - 2)  # powers of two: bf16 loses nothing
CASES = [(m, layout) for m in LAYOUTS if m != "external" for layout in LAYOUTS[m]]
"""External draft models have tests of their own."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    save_tiny(make_rand(layers=LAYERS, dtype=torch.float32), folder)
    return folder


def trained(mechanism: str, target: Path, layout: str = "speculators") -> SimpleNamespace:
    parts = target_parts(target, torch.float32)
    last = layout != "safeailab"
    shape = Shape(drafts=DEPTH, intermediate=48, markov_rank=8, last_tap=last)
    made = build(mechanism, parts, DRAFT_IDS, shape, SCALE)
    randomised(made.module)
    with torch.no_grad():  # what a file in bf16 can say
        for parameter in made.module.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    return SimpleNamespace(trainee=made, parts=parts)


def served(mechanism: str, folder: Path, target: Path) -> Drafter:
    return build_drafter(
        DrafterConfig(
            mechanism,
            model=str(folder),
            target=str(target),
            num_speculative_tokens=DEPTH,
            target_vocab_size=VOCAB,
            dtype="float32",
        )
    )


def an_answer() -> Example:
    random = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, VOCAB, (20,), generator=random)
    rows = torch.randn(19, 4 * HIDDEN, generator=random).to(torch.bfloat16)
    return Example(tokens, 6, "a", rows)


@pytest.mark.parametrize(("mechanism", "layout"), CASES)
def test_an_exported_drafter_loads_and_drafts_what_the_trainee_drafts(
    mechanism: str, layout: str, target: Path, tmp_path: Path
) -> None:
    """Told by the trainee's own count: with the drafts as the text, all of them are right."""
    made = trained(mechanism, target, layout)
    config = json.loads((target / "config.json").read_text())
    head = made.parts.head[DRAFT_IDS]
    export(
        made.trainee,
        tmp_path,
        target_name="tiny",
        target_config=config,
        head=head,
        draft_ids=DRAFT_IDS,
        layout=layout,
    )
    e = an_answer()
    if layout == "z-lab" or mechanism == "mtp":  # these draft with the target's whole head
        made = _with_whole_head(made, mechanism)
    drafter, taps = served(mechanism, tmp_path, target), default_taps(LAYERS)
    right = right_drafts(drafter, [e], taps, DEPTH)
    assert right == made.trainee.right([e])
    # And where it is right about something: its own drafts put into the text at one place.
    anchor = 8
    text = e.tokens.clone()
    for k in range(DEPTH):
        text[anchor + 1 + k] = _draft(drafter, e, text, anchor, k)
    e = Example(text, e.prompt_len, e.category, e.features)
    right = right_drafts(drafter, [e, an_answer()], taps, DEPTH)
    assert right == made.trainee.right([e, an_answer()])
    assert right[0][anchor - e.prompt_len] == DEPTH


def _draft(drafter: Drafter, e: Example, text: torch.Tensor, anchor: int, k: int) -> int:
    """The k-th draft at an anchor."""
    rows = e.features[:, _columns(drafter.info.taps, default_taps(LAYERS), e.features.shape[1])]
    key, tokens = SessionKey("v", "r"), tuple(text[: anchor + 1].tolist())
    drafter.open([OpenSession(key, tokens, GREEDY, features=rows[:anchor])])
    found = drafter.propose([DraftRequest(key, DEPTH)])[0].tokens[k]
    drafter.close(key)
    return found


def _with_whole_head(made: SimpleNamespace, mechanism: str) -> SimpleNamespace:
    shape = Shape(drafts=DEPTH, intermediate=48, markov_rank=8)
    whole = build(mechanism, made.parts, torch.arange(VOCAB), shape, SCALE)
    whole.module.load_state_dict(made.trainee.module.state_dict())
    return SimpleNamespace(trainee=whole, parts=made.parts)


def test_weights_are_bf16_and_d2t_holds_offsets(target: Path, tmp_path: Path) -> None:
    made = trained("dspark", target)
    config = json.loads((target / "config.json").read_text())
    export(
        made.trainee,
        tmp_path,
        target_name="tiny",
        target_config=config,
        head=made.parts.head[DRAFT_IDS],
        draft_ids=DRAFT_IDS,
    )
    stored = load_file(tmp_path / "model.safetensors")
    assert {t.dtype for t in stored.values() if t.is_floating_point()} == {torch.bfloat16}
    assert torch.equal(stored["d2t"] + torch.arange(len(DRAFT_IDS)), DRAFT_IDS)
    assert torch.equal(stored["t2d"].nonzero().flatten(), DRAFT_IDS)


def test_a_layout_that_a_mechanism_has_not_is_refused(target: Path, tmp_path: Path) -> None:
    made = trained("dspark", target)
    with pytest.raises(TrainingError, match="exported as speculators"):
        export(
            made.trainee,
            tmp_path,
            target_name="tiny",
            target_config={"vocab_size": VOCAB},
            head=made.parts.head[DRAFT_IDS],
            draft_ids=DRAFT_IDS,
            layout="z-lab",
        )


def test_a_layout_without_a_list_of_taps_is_for_the_usual_three(
    target: Path, tmp_path: Path
) -> None:
    made = trained("eagle3", target)
    with pytest.raises(TrainingError, match="three taps, this one 4"):
        export(
            made.trainee,
            tmp_path,
            target_name="tiny",
            target_config={"vocab_size": VOCAB},
            head=made.parts.head[DRAFT_IDS],
            draft_ids=DRAFT_IDS,
            layout="safeailab",
        )
