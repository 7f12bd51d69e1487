from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.gateway.stops import StopMatcher

PIECES = st.lists(st.text("abc", max_size=3), max_size=12)
STOPS = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=4, unique=True)


def reference(
    pieces: Sequence[str], stops: Sequence[str], include: bool, free: int
) -> tuple[str, str | None, int]:
    """(text, stop string, tokens kept) by looking at the whole text after each token. A match
    must end in the newest token's text, and the first `free` tokens cannot complete one."""
    text = ""
    for i, piece in enumerate(pieces):
        before, text = len(text), text + piece
        hits = [
            (start, len(stop), stop)
            for stop in stops
            for start in range(len(text) - len(stop) + 1)
            if text.startswith(stop, start) and start + len(stop) > before and i >= free
        ]
        if hits:
            start, length, stop = min(hits)
            return text[: start + length if include else start], stop, i + 1
    return text, None, len(pieces)


@given(PIECES, STOPS, st.booleans(), st.integers(0, 4))
def test_the_matcher_agrees_with_a_search_of_the_whole_text(
    pieces: list[str], stops: list[str], include: bool, free: int
) -> None:
    matcher = StopMatcher(stops, include)
    out, kept = "", 0
    for i, piece in enumerate(pieces):
        out += matcher.feed(piece, armed=i >= free)
        kept = i + 1
        if matcher.hit is not None:
            break
    out += matcher.finish()
    assert (out, matcher.hit, kept) == reference(pieces, stops, include, free)


@given(PIECES, STOPS)
def test_shown_text_is_never_taken_back(pieces: list[str], stops: list[str]) -> None:
    final, _, _ = reference(pieces, stops, False, 0)
    matcher, shown = StopMatcher(stops), ""
    for piece in pieces:
        shown += matcher.feed(piece)
        assert final.startswith(shown)
        if matcher.hit is not None:
            break


def test_only_what_may_begin_a_stop_string_is_held() -> None:
    matcher = StopMatcher(["END"])
    assert [matcher.feed(p) for p in ("abE", "N", "x", "E")] == ["ab", "", "ENx", ""]
    assert matcher.finish() == "E"


def test_nothing_is_held_when_the_stop_string_is_shown() -> None:
    matcher = StopMatcher(["END"], include=True)
    assert [matcher.feed(p) for p in ("abE", "N", "Dxy")] == ["abE", "N", "D"]
    assert (matcher.hit, matcher.cut) == ("END", 2)


@pytest.mark.parametrize(
    ("stops", "text", "stop"),
    [
        (["b", "abc"], "", "abc"),  # the earliest beginning
        (["abcd", "ab"], "", "ab"),  # of one beginning, the shorter
        (["c", "b"], "a", "b"),  # not the order of the list
    ],
)
def test_of_several_stops_in_one_token_the_earliest_wins(
    stops: list[str], text: str, stop: str
) -> None:
    matcher = StopMatcher(stops)
    assert matcher.feed("abcd") == text
    assert matcher.hit == stop
