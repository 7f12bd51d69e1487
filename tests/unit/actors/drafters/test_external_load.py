"""A draft model that could only lower acceptance in silence is refused at load, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from actors.drafters.config import DrafterConfig
from actors.drafters.errors import DrafterLoadError
from actors.drafters.external import ExternalDrafter
from actors.drafters.external_load import check_incremental, check_rope, compare_vocabularies
from actors.drafters.table import build_drafter
from tests.models import alphabet, make_rand, save_tiny
from tests.unit.actors.drafters.builders import draft, make_open

torch.set_num_threads(1)


def load(model: str, **fields: Any) -> ExternalDrafter:
    drafter = build_drafter(DrafterConfig("draft_model", model, **fields))
    assert isinstance(drafter, ExternalDrafter)
    return drafter


def test_a_saved_model_drafts_as_the_one_in_memory(tmp_path: Path) -> None:
    model = make_rand()
    folder = save_tiny(model, tmp_path / "draft")
    loaded = load(folder, dtype="float64", target_tokenizer=folder, target_vocab_size=128)
    there = ExternalDrafter(model, DrafterConfig("draft_model"))
    for drafter in (loaded, there):
        drafter.open([make_open([1, 2, 3])])
    assert draft(loaded) == draft(there)
    assert loaded.info.revision == "draft@local"


def test_rope_tables_stay_fp32_when_the_weights_are_bf16(tmp_path: Path) -> None:
    loaded = load(save_tiny(make_rand(), tmp_path), dtype="bfloat16")
    assert loaded._forward.model.dtype == torch.bfloat16
    tables = [b for n, b in loaded._forward.model.named_buffers() if "inv_freq" in n]
    assert tables
    assert all(table.dtype == torch.float32 for table in tables)
    with pytest.raises(DrafterLoadError, match="inv_freq"):
        check_rope(loaded._forward.model.to(torch.bfloat16))


def test_a_permuted_vocabulary_is_refused_with_the_first_id_that_differs(tmp_path: Path) -> None:
    """S34."""
    names = alphabet(128)
    names[5], names[9] = names[9], names[5]
    target = save_tiny(make_rand(), tmp_path / "target")
    folder = save_tiny(make_rand(), tmp_path / "draft", names)
    with pytest.raises(DrafterLoadError, match=r"token id 5 is 'f' in the target.*'j' in the dr"):
        load(folder, dtype="float64", target_tokenizer=target)


@pytest.mark.parametrize("vocab", [120, 136])
def test_a_vocabulary_that_is_only_shorter_or_longer_is_taken(tmp_path: Path, vocab: int) -> None:
    target = save_tiny(make_rand(), tmp_path / "target")
    folder = save_tiny(make_rand(vocab=vocab), tmp_path / "draft")
    drafter = load(folder, dtype="float64", target_tokenizer=target, target_vocab_size=128)
    assert drafter.info.vocab_size == min(vocab, 128)


def test_vocabularies_without_a_common_id_are_refused() -> None:
    with pytest.raises(DrafterLoadError, match="no token id in common"):
        compare_vocabularies({0: "a"}, {1: "a"})


def test_pickled_weights_are_never_read(tmp_path: Path) -> None:
    model = make_rand()
    save_tiny(model, tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(DrafterLoadError, match="safetensors"):
        load(str(tmp_path), dtype="float64")


def test_a_model_that_is_not_there_is_refused_by_its_field(tmp_path: Path) -> None:
    with pytest.raises(DrafterLoadError) as caught:
        load(str(tmp_path / "nothing"))
    assert caught.value.param == "model"
    with pytest.raises(DrafterLoadError, match="needs a model"):
        build_drafter(DrafterConfig("draft_model"))
    target = save_tiny(make_rand(), tmp_path / "target")
    with pytest.raises(DrafterLoadError, match="none is shipped for this target"):
        build_drafter(DrafterConfig("draft_model", target=target))


def test_a_target_tokenizer_that_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    folder = save_tiny(make_rand(), tmp_path / "draft")
    with pytest.raises(DrafterLoadError, match="cannot be compared"):
        load(folder, dtype="float64", target_tokenizer=str(tmp_path / "nothing"))


def test_a_model_that_is_not_itself_when_fed_in_parts_is_refused() -> None:
    """What a recurrent layer looks like from outside: the second part depends on more than KV."""
    model = make_rand()
    model.set_attn_implementation("pilotfish_draft")
    check_incremental(model)
    embed = model.model.embed_tokens
    embed.register_forward_hook(lambda module, args, out: out + out.cumsum(1))
    with pytest.raises(DrafterLoadError, match="fed in parts"):
        check_incremental(model)
