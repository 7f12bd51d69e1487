"""A draft model that shares with its target is of that target, or is refused by name."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from actors.drafters.checkpoints.files import open_checkpoint
from actors.drafters.checkpoints.inspect import inspect
from actors.drafters.config import DrafterConfig
from actors.drafters.errors import DrafterLoadError
from actors.drafters.external import ExternalDrafter
from actors.drafters.external_cut import (
    EMBEDDING,
    HEAD,
    KEY,
    cut_folder,
    layer_names,
    layers_digest,
)
from actors.drafters.external_load import load_draft_model
from actors.drafters.learned.target_parts import target_parts
from actors.engine.native.build import find_compiler
from actors.sampling.params import SamplingParams
from cluster.cli.drafter import lines
from tests.models import make_rand, save_tiny
from tests.unit.actors.drafters.builders import draft, make_open

LAYERS = (0, 1, 3)
WEIGHTS = "model.safetensors"
CACHE = str(Path(tempfile.gettempdir()) / "pilotfish-tests-executor")
SAMPLED = SamplingParams(temperature=1.0, seed=11, max_tokens=64)


def cut_by_hand(target: Path, folder: Path, layers: tuple[int, ...] = LAYERS, kept: int = 2) -> Any:
    """A model of those layers of the target, and its file of what is not shared."""
    source = open_checkpoint(target)
    model = make_rand(
        layers=len(layers),
        dtype=torch.float32,
        tie_word_embeddings=bool(source.config["tie_word_embeddings"]),
    )
    theirs = load_file(target / WEIGHTS)
    for name in list(theirs):
        if name.startswith("model.layers."):
            tensor = theirs.pop(name)
            index, _, rest = name.removeprefix("model.layers.").partition(".")
            if int(index) in layers:
                theirs[f"model.layers.{layers.index(int(index))}.{rest}"] = tensor
    model.load_state_dict(theirs, strict=False)
    model.tie_weights()
    model.save_pretrained(folder)
    shared = (EMBEDDING, HEAD, *(f"model.layers.{i}." for i in range(kept)))
    own = {n: t for n, t in load_file(folder / WEIGHTS).items() if not n.startswith(shared)}
    save_file(own, folder / WEIGHTS, metadata={"format": "pt"})
    digest = target_parts(target, torch.float32).digest
    said = {"weights": digest, "layers": kept, "layers_digest": layers_digest(source, kept)}
    edit(folder, lambda config: config.update({KEY: said}))
    return model


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    file = folder / "config.json"
    config = json.loads(file.read_text())
    change(config)
    file.write_text(json.dumps(config))


def replace_tensors(folder: Path, **tensors: torch.Tensor | None) -> None:
    held = load_file(folder / WEIGHTS) | {n.replace("__", "."): t for n, t in tensors.items()}
    save_file({n: t for n, t in held.items() if t is not None}, folder / WEIGHTS)


def saved(folder: Path, seed: int = 0, **fields: Any) -> Path:
    return Path(save_tiny(make_rand(layers=4, dtype=torch.float32, seed=seed, **fields), folder))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return saved(tmp_path / "target")


@pytest.fixture
def folder(target: Path, tmp_path: Path) -> Path:
    cut_by_hand(target, tmp_path / "draft")
    return tmp_path / "draft"


def load(folder: Path, target: Path | str, **fields: Any) -> Any:
    tokenizer = str(target)
    config = DrafterConfig(
        "draft_model",
        str(folder),
        target=str(target),
        target_tokenizer=tokenizer,
        dtype="float32",
        **fields,
    )
    return load_draft_model(config)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kept", [0, 2])
def test_what_is_shared_comes_from_the_target(kept: int, tied: bool, tmp_path: Path) -> None:
    target = saved(tmp_path / "target", tie_word_embeddings=tied)
    model = cut_by_hand(target, tmp_path / "draft", kept=kept)
    loaded = load(tmp_path / "draft", target)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        expected = model(ids).logits
        loaded.set_attn_implementation("eager")
        torch.testing.assert_close(loaded(ids).logits, expected, atol=1e-5, rtol=1e-5)


def test_a_target_of_several_files_is_read_by_its_index(
    target: Path, folder: Path, tmp_path: Path
) -> None:
    model = make_rand(layers=4, dtype=torch.float32)
    model.save_pretrained(target, max_shard_size="100KB")
    (target / WEIGHTS).unlink(missing_ok=True)
    assert len(list(target.glob("*.safetensors"))) > 1
    assert load(folder, target).config.num_hidden_layers == 3


def test_another_target_is_refused_with_both_digests(folder: Path, tmp_path: Path) -> None:
    other = saved(tmp_path / "other", seed=1)
    digest = target_parts(other, torch.float32).digest
    with pytest.raises(DrafterLoadError, match=f"another target: the embedding.*{digest}"):
        load(folder, other)


def test_a_target_whose_first_layers_were_tuned_is_another_target(
    folder: Path, target: Path
) -> None:
    """Its embedding is what it was."""
    held = load_file(target / WEIGHTS)
    held["model.layers.1.mlp.up_proj.weight"] += 0.5
    save_file(held, target / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(DrafterLoadError, match="another target: the first 2 layers"):
        load(folder, target)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"model__norm__weight": None}, r"neither it nor the target has model\.norm\.weight"),
        ({"model__more": torch.zeros(1)}, r"model\.more is no tensor"),
        ({"model__embed_tokens__weight": torch.zeros(1)}, r"embed_tokens.* is the target's, and"),
        ({"model__norm__weight": torch.ones(3)}, r"norm\.weight has the shape \[3\].*\[64\]"),
        ({"model__norm__weight": torch.full((64,), torch.nan)}, "NaN"),
    ],
)
def test_a_tensor_that_is_not_as_it_should_be_is_refused_by_name(
    tensors: dict[str, torch.Tensor | None], words: str, folder: Path, target: Path
) -> None:
    replace_tensors(folder, **tensors)
    with pytest.raises(DrafterLoadError, match=words):
        load(folder, target)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_with_d2t_its_tokens_alone_are_drafted_by_the_targets_own_rows(
    dtype: str, folder: Path, target: Path
) -> None:
    few = torch.tensor([2, 3, 60, 61, 127])
    whole, parameters = load(folder, target), inspect(folder)["parameters"]
    replace_tensors(folder, d2t=few - torch.arange(5))
    model = load(folder, target)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    with torch.no_grad():
        for each in (model, whole):
            each.set_attn_implementation("eager")
        torch.testing.assert_close(model(ids).logits, whole(ids).logits[..., few])
    config = DrafterConfig(
        "draft_model", str(folder), target=str(target), target_tokenizer=str(target), dtype=dtype
    )
    drafter = ExternalDrafter.load(replace(config, compile_cache=CACHE if find_compiler() else ""))
    rows = drafter._spread(torch.arange(5.0)[None])
    assert rows.shape == (1, 128)
    assert rows.isfinite().nonzero()[:, 1].tolist() == few.tolist()
    assert rows[0, few].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    drafter.open([make_open([9, 8, 7]), make_open([5] * 30, "s", sampling=SAMPLED)])
    for request in ("r", "s"):
        assert set(draft(drafter, 4, request)) <= set(few.tolist())
    said = inspect(folder)
    assert said["draft_vocabulary"] == 5
    assert said["parameters"] == parameters


@pytest.mark.parametrize(
    "d2t",
    [
        torch.tensor([0, 0, 200]),
        torch.tensor([1, 0]),
        torch.ones(3),
        torch.zeros(2, 2).long(),
        torch.zeros(0).long(),
    ],
)
def test_a_d2t_that_names_no_distinct_tokens_is_refused(
    d2t: torch.Tensor, folder: Path, target: Path
) -> None:
    replace_tensors(folder, d2t=d2t)
    with pytest.raises(DrafterLoadError, match="d2t"):
        load(folder, target)


@pytest.mark.parametrize("tokenizer", [False, True])
def test_where_another_vocabulary_is_allowed_a_cut_one_still_has_its_targets(
    tokenizer: bool, folder: Path, target: Path
) -> None:
    """The rows of a reduced head are no ids, so no tokenizer can say what they are."""
    few = torch.tensor([2, 3, 60, 61, 127])
    replace_tensors(folder, d2t=few - torch.arange(5))
    for file in target.glob("tokenizer*") if tokenizer else ():
        (folder / file.name).write_bytes(file.read_bytes())
    config = DrafterConfig(
        "draft_model", str(folder), target=str(target), target_tokenizer=str(target)
    )
    drafter = ExternalDrafter.load(replace(config, use_heterogeneous_vocab=True))
    rows = drafter._spread(torch.arange(5.0)[None])
    assert rows.isfinite().nonzero()[:, 1].tolist() == few.tolist()


@pytest.mark.parametrize(
    "said",
    [{}, {"weights": "x"}, 3, {"weights": "x", "layers": "2", "layers_digest": ""}],
)
def test_what_config_json_says_of_it_must_be_understood(
    said: object, folder: Path, target: Path
) -> None:
    edit(folder, lambda config: config.update({KEY: said}))
    with pytest.raises(DrafterLoadError, match=f"{KEY} of config.json is not understood"):
        load(folder, target)


def test_a_model_type_that_nobody_knows_is_refused(folder: Path, target: Path) -> None:
    edit(folder, lambda config: config.update({"model_type": "squid"}))
    with pytest.raises(DrafterLoadError, match="no known model"):
        load(folder, target)


def test_without_a_target_there_is_nothing_to_share(folder: Path) -> None:
    with pytest.raises(DrafterLoadError, match="not told where the target is"):
        load_draft_model(DrafterConfig("draft_model", str(folder)))


def test_a_file_that_is_cut_off_is_refused_by_name(folder: Path, target: Path) -> None:
    weights = folder / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(DrafterLoadError, match=r"model\.safetensors"):
        load(folder, target)


def test_any_other_draft_model_is_no_such_one(target: Path, tmp_path: Path) -> None:
    assert cut_folder(str(target), None) is None
    empty = tmp_path / "empty"
    empty.mkdir()
    assert cut_folder(str(empty), None) is None


def test_inspecting_says_what_is_shared_and_with_whom(
    folder: Path, target: Path, tmp_path: Path
) -> None:
    said = inspect(folder, target)
    assert (said["method"], said["fits"], said["spec"]["shared_layers"]) == ("draft_model", True, 2)
    assert target_parts(target, torch.float32).digest in said["for"]
    assert any("layers the first 2 are the target's own" in line for line in lines(said))
    other = inspect(folder, saved(tmp_path / "other", seed=1))
    assert not other["fits"]
    assert "another target" in other["reasons"][0]
    assert "fits" not in inspect(folder)


def test_layers_are_told_apart_by_number(tmp_path: Path) -> None:
    """1 is not 10."""
    folder = Path(save_tiny(make_rand(layers=12, dtype=torch.float32), tmp_path))
    names = layer_names(open_checkpoint(folder), 2)
    assert {name.split(".")[2] for name in names} == {"0", "1"}
