"""A drafter without a name is the one that is shipped for the target, or none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from actors.drafters import shipped as module
from actors.drafters.errors import DrafterLoadError
from actors.drafters.learned.target_parts import target_parts
from tests.models import make_rand, save_tiny

LIMIT_BYTES = 25_000_000


def entry(root: Path, name: str, mechanism: str, digest: str) -> Path:
    folder = root / name
    folder.mkdir()
    facts = {"mechanism": mechanism, "target": {"shared_weights": digest}}
    (folder / module.PROVENANCE).write_text(json.dumps(facts))
    return folder


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "shipped"
    root.mkdir()
    held = module.catalogue.__wrapped__
    monkeypatch.setattr(module, "catalogue", lambda: held(root))
    return root


def saved(folder: Path, seed: int) -> Path:
    return Path(save_tiny(make_rand(dtype=torch.float32, seed=seed), folder))


def test_a_drafter_is_found_by_the_weights_of_its_target_wherever_they_lie(
    catalogue: Path, tmp_path: Path
) -> None:
    one, copy, other = (saved(tmp_path / n, s) for n, s in (("a", 0), ("b", 0), ("c", 1)))
    made = entry(catalogue, "a-dspark", "dspark", target_parts(one, torch.bfloat16).digest)
    assert module.shipped("dspark", copy) == made
    assert module.shipped("dspark", other) is None
    assert module.shipped("eagle3", one) is None


def test_a_damaged_entry_is_refused_by_name(catalogue: Path, tmp_path: Path) -> None:
    broken = entry(catalogue, "a-dspark", "dspark", "x") / module.PROVENANCE
    broken.write_text("{")
    with pytest.raises(DrafterLoadError, match="a-dspark"):
        module.shipped("dspark", tmp_path)


def test_an_external_one_is_found_by_the_method_that_serves_it(
    catalogue: Path, tmp_path: Path
) -> None:
    target = saved(tmp_path / "a", 0)
    made = entry(catalogue, "a-external", "external", target_parts(target, torch.bfloat16).digest)
    assert module.shipped("draft_model", target) == made


def test_every_shipped_drafter_is_small_and_says_where_it_comes_from() -> None:
    for (method, _), folder in module.catalogue().items():
        assert (folder / "model.safetensors").stat().st_size <= LIMIT_BYTES
        facts = json.loads((folder / module.PROVENANCE).read_text())
        assert folder.name.endswith(f"-{facts['mechanism']}")
        assert module.METHODS.get(facts["mechanism"], facts["mechanism"]) == method
        assert facts["command"]
        assert facts["answers"]["tokens"] > 0
        assert facts["validation"]["acceptance_length"]
