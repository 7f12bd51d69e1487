"""Building: cached by fingerprint, never half, refused with a reason."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from actors.engine.native import build as building
from actors.engine.native.build import BuildError, build, cached, find_compiler, load
from tests.native import compiled, needs_compiler


def script(folder: Path, body: str) -> str:
    """A compiler of the test's own."""
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_without_a_compiler_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert find_compiler() == ""
    with pytest.raises(BuildError, match=r"g\+\+"):
        build(tmp_path)


def test_cxx_names_the_compiler(tmp_path: Path) -> None:
    path = script(tmp_path, "exit 0")
    assert find_compiler({"CXX": path}) == path
    assert find_compiler({"CXX": "no-such-compiler"}) == ""


def test_a_compilers_complaint_is_in_the_error_and_nothing_stays_behind(tmp_path: Path) -> None:
    compiler = script(tmp_path, 'test "$1" = --version || { echo "no such flag" >&2; exit 3; }')
    with pytest.raises(BuildError, match="no such flag"):
        build(tmp_path / "cache", compiler)
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_was_built_once_is_not_built_again(tmp_path: Path) -> None:
    count = tmp_path / "count"
    compiler = script(
        tmp_path,
        f'test "$1" = --version && exit 0; echo x >> {count}\n'
        'while [ "$1" != -o ]; do shift; done; touch "$2"',
    )
    first, again = build(tmp_path / "cache", compiler), build(tmp_path / "cache", compiler)
    assert first == again
    assert first.exists()
    assert count.read_text() == "x\n"


def test_another_compiler_source_or_flag_is_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = script(tmp_path, "echo one")
    names = {cached(tmp_path, one)}
    script(tmp_path, "echo two")
    names.add(cached(tmp_path, one))
    monkeypatch.setattr(building, "FLAGS", (*building.FLAGS, "-DX"))
    names.add(cached(tmp_path, one))
    sources = tmp_path / "sources"
    sources.mkdir()
    for path in building.SOURCES.iterdir():
        (sources / path.name).write_bytes(path.read_bytes() + b"\n")
    monkeypatch.setattr(building, "SOURCES", sources)
    names.add(cached(tmp_path, one))
    assert len(names) == 4


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    compiler = script(
        tmp_path, 'test "$1" = --version || { while [ "$1" != -o ]; do shift; done; echo > "$2"; }'
    )
    with pytest.raises(BuildError, match="cannot be loaded"):
        load(tmp_path / "cache", compiler)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BuildError, match="cannot be built"):
        build(tmp_path / "file" / "cache", script(tmp_path, "exit 0"))


@needs_compiler
def test_the_real_library_speaks_this_version() -> None:
    assert compiled().path.name == cached(compiled().path.parent, find_compiler()).name


def test_code_is_not_loaded_from_where_others_can_write(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    compiler = script(tmp_path, "exit 0")
    with pytest.raises(BuildError, match="written by others"):
        build(folder, compiler)
    folder.chmod(0o755)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    cached(folder, compiler).symlink_to(elsewhere)
    with pytest.raises(BuildError, match="a link or somebody else's"):
        build(folder, compiler)
