"""A profile outlives its process, and nothing wrong is believed of it."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.engine import service as engine_service
from actors.engine.options import EngineOptions
from actors.engine.profile_cache import kept, place
from actors.engine.profile_kind import Kind
from actors.engine.service import EngineService
from policies.estimate_cost import Sample
from tests.models import make_rand, save_tiny

KIND = Kind("digest", "float32", "eager", "a processor", 1, 1, 64, 0)
SAMPLES = [Sample(1, 0.25, 1, 64), Sample(8, 0.5, 8, 64)]
WRONG = [Sample(1, 99.0)]


def same() -> Sample:
    """A row takes what it took."""
    return SAMPLES[0]


def never() -> list[Sample]:
    raise AssertionError("it is measured though it is known")


def test_what_was_measured_once_is_read_at_the_next_start(tmp_path: Path) -> None:
    assert kept(str(tmp_path), KIND, lambda: SAMPLES, same) == SAMPLES
    assert kept(str(tmp_path), KIND, never, same) == SAMPLES


def test_another_kind_of_engine_is_measured_for_itself(tmp_path: Path) -> None:
    kept(str(tmp_path), KIND, lambda: WRONG, same)
    for name, other in {"threads": 2, "dtype": "bfloat16", "executor": "native"}.items():
        kind = replace(KIND, **{name: other})
        assert kept(str(tmp_path), kind, lambda: SAMPLES, same) == SAMPLES


def test_who_asks_for_it_anew_gets_it_and_leaves_it(tmp_path: Path) -> None:
    kept(str(tmp_path), KIND, lambda: WRONG, same)
    assert kept(str(tmp_path), KIND, lambda: SAMPLES) == SAMPLES
    assert kept(str(tmp_path), KIND, never, same) == SAMPLES


@pytest.mark.parametrize(
    ("factor", "believed"), [(1.4, True), (0.7, True), (1.6, False), (0.6, False)]
)
def test_a_profile_is_believed_while_a_forward_takes_what_it_says(
    factor: float, believed: bool, tmp_path: Path
) -> None:
    kept(str(tmp_path), KIND, lambda: SAMPLES, same)
    now = replace(SAMPLES[0], seconds=factor * SAMPLES[0].seconds)
    found = kept(str(tmp_path), KIND, lambda: WRONG, lambda: now)
    assert found == (SAMPLES if believed else WRONG)


def test_a_profile_without_the_forward_that_was_looked_at_is_not_believed(tmp_path: Path) -> None:
    kept(str(tmp_path), KIND, lambda: SAMPLES, same)
    other = replace(SAMPLES[0], context=63)
    assert kept(str(tmp_path), KIND, lambda: WRONG, lambda: other) == WRONG


def sample(**fields: Any) -> dict[str, Any]:
    return {"rows": 1, "seconds": 1.0, "sequences": 1, "context": 1, **fields}


@pytest.mark.parametrize(
    "change",
    [
        {"format": 0},
        {"kind": {}},
        {"samples": []},
        {"samples": {}},
        {"samples": [sample()] * 257},
        {"samples": [sample(seconds=0.0)]},
        {"samples": [sample(seconds="soon")]},
        {"samples": [sample(rows=0)]},
        {"samples": [sample(rows=1.5)]},
        {"samples": [sample(sequences=2)]},
        {"samples": [sample(context=-1)]},
        {"samples": [sample(colour="red")]},
    ],
)
def test_what_cannot_be_is_said_and_measured_anew(
    change: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept(str(tmp_path), KIND, lambda: SAMPLES, same)
    path = place(str(tmp_path), KIND)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with caplog.at_level(logging.WARNING):
        assert kept(str(tmp_path), KIND, lambda: SAMPLES[:1], same) == SAMPLES[:1]
    assert "not used" in caplog.text
    assert kept(str(tmp_path), KIND, never, same) == SAMPLES[:1]


@pytest.mark.parametrize("text", [b"", b"\x80\x04K\x01.", b"[1]", b'{"format": 1}', b"[" * 70_000])
def test_a_damaged_file_is_said_and_measured_anew(
    text: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place(str(tmp_path), KIND).write_bytes(text)
    with caplog.at_level(logging.WARNING):
        assert kept(str(tmp_path), KIND, lambda: SAMPLES, same) == SAMPLES
    assert "not used" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == [place(str(tmp_path), KIND).name]


def test_a_folder_that_cannot_be_written_costs_the_next_start_its_profile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        assert kept(str(tmp_path / "file"), KIND, lambda: SAMPLES, same) == SAMPLES
    assert "not kept" in caplog.text


def test_without_a_folder_nothing_is_kept() -> None:
    assert kept("", KIND, lambda: SAMPLES, same) == SAMPLES


def test_an_engine_that_starts_again_knows_its_costs_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = EngineOptions(
        save_tiny(make_rand(), tmp_path / "model"),
        "v",
        dtype="float32",
        enforce_eager=True,
        adaptive=True,
        max_num_seqs=2,
        compile_cache=str(tmp_path / "cache"),
    )
    first = EngineService(options)
    monkeypatch.setattr(engine_service, "profile", lambda *given, **named: never())
    monkeypatch.setattr(engine_service, "one_row", lambda *given: first.costs[0])
    again = EngineService(options)
    assert again.costs == first.costs
    assert len(first.costs) >= 2
    with pytest.raises(AssertionError, match="though it is known"):
        EngineService(options, profiling=True)
