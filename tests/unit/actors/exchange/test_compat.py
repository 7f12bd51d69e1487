from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from actors.exchange.compat import (
    PROTOCOL,
    RULE,
    Compat,
    difference,
    target_digest,
    tokenizer_digest,
)

OURS = Compat("target", "tokenizer", "drafter", (1, 2), RULE)
CONFIG = {
    "model_type": "llama",
    "hidden_size": 576,
    "vocab_size": 49152,
    "rope_scaling": {"factor": 2.0},
    "dtype": "bfloat16",
}


def test_equal_sides_have_no_difference() -> None:
    assert difference(PROTOCOL, OURS, OURS, needs_features=True) is None


@pytest.mark.parametrize("field", ["target", "tokenizer", "drafter", "projection", "rule"])
def test_the_field_that_differs_is_named(field: str) -> None:
    found = difference(PROTOCOL, replace(OURS, **{field: "x"}), OURS, needs_features=True)
    assert found is not None
    assert found[0] == field


def test_the_first_of_several_differences_is_named() -> None:
    other = Compat("x", "y", "z", (9,), "w", "p")
    for field in ("target", "tokenizer", "drafter", "taps", "projection", "rule"):
        found = difference(PROTOCOL, other, OURS, needs_features=True)
        assert found is not None
        assert found[0] == field
        other = replace(other, **{field: getattr(OURS, field)})
    found = difference(PROTOCOL + 1, Compat("x"), OURS, needs_features=True)
    assert found is not None
    assert found[0] == "protocol"


def test_taps_matter_only_to_drafters_that_need_features() -> None:
    other = replace(OURS, taps=())
    assert difference(PROTOCOL, other, replace(OURS, taps=()), needs_features=False) is None
    assert difference(PROTOCOL, OURS, replace(OURS, taps=()), needs_features=False) is None
    found = difference(PROTOCOL, other, OURS, needs_features=True)
    assert found is not None
    assert found[0] == "taps"


def test_an_unknown_digest_agrees_with_any() -> None:
    assert difference(PROTOCOL, Compat(), OURS, needs_features=False) is None
    assert difference(PROTOCOL, OURS, Compat(), needs_features=False) is None


@pytest.mark.parametrize(
    "change",
    [{"dtype": "float32"}, {"_name_or_path": "a/b"}, {"transformers_version": "6"}],
)
def test_the_targets_digest_ignores_what_a_draft_does_not_depend_on(
    change: dict[str, object],
) -> None:
    assert target_digest({**CONFIG, **change}) == target_digest(CONFIG)
    assert target_digest(dict(reversed(CONFIG.items()))) == target_digest(CONFIG)


@pytest.mark.parametrize(
    "change", [{"hidden_size": 577}, {"vocab_size": 1}, {"rope_scaling": {"factor": 4.0}}]
)
def test_the_targets_digest_sees_shapes_and_positions(change: dict[str, object]) -> None:
    assert target_digest({**CONFIG, **change}) != target_digest(CONFIG)


def test_a_tokenizers_file_and_its_vocabulary_have_one_digest(tmp_path: Path) -> None:
    vocab = {"a": 0, "b": 1, "é": 2}
    data = {"model": {"vocab": vocab}, "added_tokens": [{"id": 3, "content": "<eos>"}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    expected = tokenizer_digest({**vocab, "<eos>": 3})
    assert tokenizer_digest(tmp_path) == expected
    assert tokenizer_digest(str(tmp_path / "tokenizer.json")) == expected
    assert tokenizer_digest({**vocab, "<eos>": 4}) != expected
    assert tokenizer_digest({"b": 0, "a": 1, "é": 2, "<eos>": 3}) != expected


def test_a_unigram_vocabulary_is_a_list(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({"model": {"vocab": [["a", -1.0], ["b", -2.0]]}}))
    assert tokenizer_digest(file) == tokenizer_digest({"a": 0, "b": 1})


def test_a_folder_without_a_vocabulary_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        tokenizer_digest(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="no vocabulary"):
        tokenizer_digest(tmp_path)
