"""Which layers a draft model is cut of, and that they are the target's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from actors.drafters.learned.target_parts import target_parts
from actors.training.cut import FAMILIES, Cut, cut_config, cut_module, default_cut, plan_cut
from actors.training.errors import TrainingError
from actors.training.external_trainee import ExternalTrainee
from tests.models import BARE
from tests.unit.actors.training.small_target import (
    HIDDEN,
    LAYERS,
    TAPS,
    VOCAB,
    saved_target,
    written,
)

SMOLLM2 = (30, (2, 15, 27, 30))
WINDOWS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 6},
    "qwen2": {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 4},
    "qwen3": {},
}


def test_by_default_recorded_layers_stay_and_those_that_copy_are_trained() -> None:
    scores = [0.9, 0.9, 0.9, *([0.0] * 27)]
    scores[17], scores[18], scores[23] = 0.7, 0.8, 0.6
    layers = default_cut(scores, SMOLLM2[1])
    assert plan_cut(layers, *SMOLLM2) == Cut((0, 1, 2, 17, 18), 2)
    assert default_cut([0.0] * 4, (2, 2, 1, 4)) == (0, 1, 2, 3)
    assert default_cut([0.0] * 2, (2, 1, -1, 2)) == (0, 1)


@pytest.mark.parametrize(
    ("layers", "kept"),
    [
        ((0, 1, 7, 8), 2),
        ((0, 5, 29), 0),  # layer 1 is missing, so no recorded state is what comes before 5
        ((5, 29), 0),
        ((0, 1), 0),  # something has to be trained
        (tuple(range(16)), 15),
    ],
)
def test_layers_are_kept_up_to_a_recorded_state(layers: tuple[int, ...], kept: int) -> None:
    assert plan_cut(layers, *SMOLLM2) == Cut(layers, kept)


@pytest.mark.parametrize(
    ("layers", "words"), [((0, 30), "none 30"), ((1, 0), "in their order"), ((2, 2), "once each")]
)
def test_layers_that_the_target_has_not_are_refused(layers: tuple[int, ...], words: str) -> None:
    with pytest.raises(TrainingError, match=words):
        plan_cut(layers, *SMOLLM2)


def test_a_family_whose_layers_are_not_known_is_refused_by_name() -> None:
    with pytest.raises(TrainingError, match="not from gemma3"):
        cut_config({"model_type": "gemma3"}, (0,))


def test_every_known_family_is_tried_here() -> None:
    assert set(FAMILIES) == set(WINDOWS)


def test_a_window_goes_with_its_layer() -> None:
    target = {"model_type": "qwen2", "num_hidden_layers": 4, "use_sliding_window": True}
    target |= {"sliding_window": 8, "max_window_layers": 2}
    assert cut_config(target, (1, 3))["layer_types"] == ["full_attention", "sliding_attention"]


@pytest.mark.parametrize("layers", [range(LAYERS), range(3, LAYERS)])
def test_a_layer_is_the_targets_own_wherever_it_stands(layers: range, tmp_path: Path) -> None:
    model = saved_target(tmp_path)
    cut = Cut(tuple(layers), 0)
    made = cut_module(target_parts(tmp_path, torch.float32), cut)
    for i, layer in enumerate(cut.layers):
        theirs = model.model.layers[layer].state_dict()
        for name, tensor in made.model.layers[i].state_dict().items():
            assert torch.equal(tensor, theirs[name])


@pytest.mark.parametrize("kept", [0, 2])
@pytest.mark.parametrize("family", sorted(WINDOWS))
def test_a_draft_model_of_all_layers_is_the_target(family: str, kept: int, tmp_path: Path) -> None:
    """Whether its first layers are computed or recorded; texts that are packed do not see each
    other, and windows are the target's."""
    model = of_family(family)
    model.save_pretrained(tmp_path)
    parts = target_parts(tmp_path, torch.float32)
    made = ExternalTrainee(parts, Cut(tuple(range(LAYERS)), kept), TAPS, depth=4)
    texts = [written(model, 5, 16, 0), written(model, 9, 14, 1)]
    with torch.no_grad():
        dict(made.module.named_parameters())["model.norm.weight"].copy_(parts.norm)
        together = made.states(texts)
        alone = [model.model(e.tokens[None, :-1], use_cache=False)[0][0] for e in texts]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=1e-4)
    assert made.right(texts) == [[min(4, n) for n in range(e.anchors, 0, -1)] for e in texts]


def of_family(family: str) -> Any:
    """Qwen2's first layers see everything, the others a window; and it has biases."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = CONFIG_MAPPING[family].from_dict(
            {
                **BARE,
                **WINDOWS[family],
                "vocab_size": VOCAB,
                "hidden_size": HIDDEN,
                "head_dim": 16,
                "num_hidden_layers": LAYERS,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "intermediate_size": 96,
                "initializer_range": 0.3,
            }
        )
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
