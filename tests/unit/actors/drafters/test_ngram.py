"""Prompt lookup: the longest suffix, its latest earlier occurrence, nothing else."""

from __future__ import annotations

import random

import pytest

from actors.drafters.ngram import NgramIndex
from tests.unit.actors.drafters.builders import draft, make_commit, make_drafter, make_open


def naive(tokens: list[int], shortest: int, longest: int, count: int) -> tuple[int, ...]:
    for n in range(longest, shortest - 1, -1):
        for at in range(len(tokens) - 1, n - 1, -1):
            if tokens[at - n : at] == tokens[len(tokens) - n :]:
                text = list(tokens)
                for i in range(count):
                    text.append(text[at + i])
                return tuple(text[len(tokens) :])
    return ()


@pytest.mark.parametrize("alphabet", [2, 3, 10])
def test_the_incremental_index_finds_what_a_rescan_finds(alphabet: int) -> None:
    rng = random.Random(alphabet)
    for _ in range(30):
        index = NgramIndex(2, 5, base=1_000_003)
        text: list[int] = []
        while len(text) < 60:
            piece = [rng.randrange(alphabet) for _ in range(rng.randrange(1, 5))]
            index.extend(piece)
            text += piece
            assert index.lookup(6) == naive(text, 2, 5, 6)


def test_the_longest_match_wins_over_a_later_shorter_one() -> None:
    text = [1, 2, 3, 4, 9, 7, 3, 4, 8, 6, 1, 2, 3, 4]
    drafter = make_drafter("ngram")
    drafter.open([make_open(text)])
    assert draft(drafter, 2) == (9, 7)


def test_the_latest_of_equally_long_matches_is_copied() -> None:
    drafter = make_drafter("ngram")
    drafter.open([make_open([1, 2, 7, 7, 1, 2, 8, 8, 1, 2])])
    assert draft(drafter, 2) == (8, 8)


def test_the_suffix_never_matches_itself() -> None:
    drafter = make_drafter("ngram")
    drafter.open([make_open(range(50))])
    assert draft(drafter) == ()


def test_a_colliding_hash_proposes_nothing_false() -> None:
    """With base 0 every n-gram's key is its last token: a hit that fails the comparison."""
    index = NgramIndex(2, 2, base=0)
    index.extend([1, 5, 9, 2, 5])
    assert index.lookup(3) == ()


def test_a_periodic_text_is_continued_past_its_end() -> None:
    drafter = make_drafter("ngram")
    drafter.open([make_open([1, 2, 3, 1, 2, 3])])
    assert draft(drafter, 8) == (1, 2, 3, 1, 2, 3, 1, 2)


def test_commits_extend_what_can_be_found() -> None:
    drafter = make_drafter("ngram")
    drafter.open([make_open([1, 2, 3])])
    drafter.observe([make_commit(3, 9)])
    drafter.observe([make_commit(4, 1, 2)])
    assert draft(drafter, 2) == (3, 9)


def test_no_position_reaches_the_context_end() -> None:
    drafter = make_drafter("ngram", max_context=10)
    drafter.open([make_open([1, 2] * 4)])
    assert draft(drafter, 8) == (1, 2)
    drafter.observe([make_commit(8, 1, 2)])
    assert draft(drafter, 8) == ()
