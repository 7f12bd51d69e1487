from __future__ import annotations

from pathlib import Path

import pytest

from cluster.models import resolve as module
from cluster.models.errors import ModelStoreError, UnknownModel
from cluster.models.resolve import resolve


@pytest.fixture(autouse=True)
def no_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "pull", lambda name, progress: Path("/cache") / name)


def test_a_catalogue_name_becomes_its_cached_folder() -> None:
    assert resolve("smollm2") == Path("/cache/smollm2")


def test_a_folder_with_a_model_stays_itself(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert resolve(str(tmp_path)) == tmp_path
    with pytest.raises(UnknownModel, match=r"neither config\.json nor a GGUF"):
        resolve(str(tmp_path.parent))


def test_a_catalogue_name_wins_over_a_folder_of_that_name_unless_written_as_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").mkdir()
    (tmp_path / "smollm2" / "config.json").write_text("{}")
    assert resolve("smollm2") == Path("/cache/smollm2")
    assert resolve("./smollm2") == tmp_path / "smollm2"


def test_a_hugging_face_id_goes_through_with_its_revision() -> None:
    name = "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert resolve(name, "main") == name


def test_a_wrong_name_gets_the_close_and_the_known_ones() -> None:
    with pytest.raises(UnknownModel, match=r"Did you mean smollm2\? Known: smollm2") as caught:
        resolve("SmolLM-2")
    assert caught.value.close == ("smollm2",)


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "~/nowhere-at-all", "a/b/c"])
def test_a_path_that_is_not_there_is_called_a_folder_and_no_model_name(name: str) -> None:
    with pytest.raises(UnknownModel, match="no such folder"):
        resolve(name)


def test_a_revision_is_refused_where_nothing_has_revisions(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for name in ("smollm2", str(tmp_path)):
        with pytest.raises(ModelStoreError, match="only a Hugging Face id has revisions"):
            resolve(name, "main")
