from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from cluster.models.errors import DigestMismatch, FetchFailed
from cluster.models.fetch import fetch
from tests.unit.cluster.models.server import Served, serving

CONTENT = bytes(range(256)) * 400


def run(served: Served, part: Path, **overrides: object) -> list[float]:
    """Fetch CONTENT; the sleeps it asked for."""
    slept: list[float] = []
    arguments = {"size": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()} | overrides
    fetch(served.url, part, sleep=slept.append, **arguments)
    return slept


def test_a_fetched_file_has_every_byte_and_reports_its_progress(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with serving(CONTENT) as served:
        run(served, tmp_path / "part", on_bytes=lambda done, total: seen.append((done, total)))
    assert (tmp_path / "part").read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_an_existing_part_is_continued_and_not_fetched_again(tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_bytes(CONTENT[:70_000])
    with serving(CONTENT) as served:
        run(served, part)
    assert served.asked == ["bytes=70000-"]
    assert served.sent == len(CONTENT) - 70_000
    assert part.read_bytes() == CONTENT


def test_a_complete_part_costs_no_request(tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_bytes(CONTENT)
    with serving(CONTENT) as served:
        run(served, part)
    assert served.asked == []


def test_dropped_connections_are_resumed_where_they_broke(tmp_path: Path) -> None:
    with serving(CONTENT, cut_after=[30_000, 30_000, 30_000]) as served:
        run(served, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == CONTENT
    assert len(served.asked) == 4
    assert served.sent <= len(CONTENT) + 3  # nothing was sent twice


def test_a_server_without_ranges_starts_over_and_still_gives_the_file(tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_bytes(b"x" * 1000)
    with serving(CONTENT, ranges=False) as served:
        run(served, part)
    assert part.read_bytes() == CONTENT


def test_a_damaged_part_is_thrown_away_and_fetched_afresh(tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_bytes(b"x" * 1000)
    with serving(CONTENT) as served:
        run(served, part)
    assert served.asked == ["bytes=1000-", None]
    assert part.read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_thrown_away(tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_bytes(CONTENT + b"more")
    with serving(CONTENT) as served:
        run(served, part)
    assert part.read_bytes() == CONTENT


def test_other_bytes_than_the_pinned_ones_are_refused_and_removed(tmp_path: Path) -> None:
    other = b"y" * len(CONTENT)
    with serving(other) as served, pytest.raises(DigestMismatch, match="pinned sha256"):
        run(served, tmp_path / "part")
    assert not (tmp_path / "part").exists()


def test_a_server_that_sends_too_much_is_cut_off(tmp_path: Path) -> None:
    with serving(CONTENT * 3) as served, pytest.raises(FetchFailed, match="more than the expected"):
        run(served, tmp_path / "part")
    assert not (tmp_path / "part").exists() or (tmp_path / "part").stat().st_size <= len(CONTENT)


def test_a_busy_server_is_asked_again_and_a_refusal_is_final(tmp_path: Path) -> None:
    with serving(CONTENT, statuses=[503, 429]) as served:
        slept = run(served, tmp_path / "part")
    assert slept == [0.5, 1.0]
    with serving(CONTENT, statuses=[403]) as served, pytest.raises(FetchFailed, match="HTTP 403"):
        run(served, tmp_path / "other")
    assert len(served.asked) == 1


def test_a_dead_server_is_given_up_after_a_few_attempts_and_the_part_stays(tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_bytes(CONTENT[:1000])
    with serving(CONTENT) as served:
        pass
    with pytest.raises(FetchFailed, match="1000 of 102400 bytes so far"):
        run(served, part, stalls=3)
    assert part.read_bytes() == CONTENT[:1000]


def test_a_file_url_is_copied(tmp_path: Path) -> None:
    source = tmp_path / "a file.whl"
    source.write_bytes(CONTENT)
    run(Served(CONTENT, url=source.as_uri()), tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == CONTENT
    with pytest.raises(FetchFailed, match="No such file"):
        run(Served(CONTENT, url=(tmp_path / "none").as_uri()), tmp_path / "part2")


def test_credentials_of_a_url_stay_out_of_messages(tmp_path: Path) -> None:
    with serving(CONTENT, statuses=[401]) as served:
        served.url = served.url.replace("//", "//user:secret@") + "?token=secret"
        with pytest.raises(FetchFailed) as caught:
            run(served, tmp_path / "part")
    assert "secret" not in str(caught.value)
    assert "HTTP 401" in str(caught.value)
