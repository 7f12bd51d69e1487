"""The automaton's counts, contexts and continuations against counting by hand."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from actors.drafters.suffix_index import Cursor, SuffixIndex

DEPTH = 5
texts = st.lists(st.integers(0, 2), min_size=1, max_size=40)


def count_substrings(live: list[list[int]]) -> Counter[tuple[int, ...]]:
    return Counter(
        tuple(text[i : i + n])
        for text in live
        for n in range(1, DEPTH + 1)
        for i in range(len(text) - n + 1)
    )


def state_of(index: SuffixIndex, text: tuple[int, ...]) -> int | None:
    state = 0
    for token in text:
        state = index._next[state].get(token, -1)
        if state < 0:
            return None
    return state


def assert_exact(index: SuffixIndex, live: list[list[int]], latest: bool) -> None:
    """Every substring's count, and every context's most frequent (latest) continuation."""
    counts = count_substrings(live)
    for text, count in counts.items():
        state = state_of(index, text)
        assert state is not None
        assert index._count[state] == count, text
        if len(text) == DEPTH:
            continue
        following = {t: counts[(*text, t)] for t in range(3) if counts[(*text, t)]}
        if following:
            best = index._best[state]
            assert following.get(best) == max(following.values()), (text, best, following)
            if latest:
                ties = [t for t, n in following.items() if n == max(following.values())]
                assert best == max(ties, key=lambda t: newest(live[0], (*text, t)))


def newest(text: list[int], part: tuple[int, ...]) -> int:
    return max(i for i in range(len(text)) if tuple(text[i : i + len(part)]) == part)


@given(texts)
@settings(max_examples=150, deadline=None)
def test_counts_and_best_continuations_are_exact_after_every_token(text: list[int]) -> None:
    index, cursor = SuffixIndex(DEPTH), Cursor()
    for n, token in enumerate(text, 1):
        index.append(cursor, token)
        assert_exact(index, [text[:n]], latest=True)


@given(texts)
@settings(max_examples=150, deadline=None)
def test_contexts_are_the_suffixes_that_occur_earlier(text: list[int]) -> None:
    index, cursor = SuffixIndex(DEPTH), Cursor()
    for token in text:
        index.append(cursor, token)
    counts = count_substrings([text])
    want = {n for n in range(1, DEPTH) if counts[tuple(text[-n:])] > 1 and n <= len(text)}
    found = {matched: state for state, matched in index.contexts(cursor)}
    for matched, state in found.items():
        assert state_of(index, tuple(text[-matched:])) == state
    assert set(found) <= want
    assert max(found, default=0) == max(want, default=0)
    # A suffix left out has the occurrences of a longer one that was given.
    for n in want - set(found):
        assert any(m > n and counts[tuple(text[-m:])] == counts[tuple(text[-n:])] for m in found)


@given(st.lists(texts, min_size=2, max_size=6), st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_retiring_a_text_leaves_the_counts_of_the_others(
    many: list[list[int]], retired: int
) -> None:
    index = SuffixIndex(DEPTH)
    for text in many:
        cursor = Cursor()
        for token in text:
            index.append(cursor, token)
    gone = min(retired, len(many) - 1)
    for text in many[:gone]:
        for _ in index.retire(text):
            pass
    live = many[gone:]
    assert_exact(index, live, latest=False)
    counts = count_substrings(live)
    for text in many[:gone]:
        for n in range(1, DEPTH + 1):
            for i in range(len(text) - n + 1):
                part = tuple(text[i : i + n])
                state = state_of(index, part)
                assert state is not None
                assert index._count[state] == counts[part]


@given(texts, texts)
@settings(max_examples=150, deadline=None)
def test_a_foreign_context_matches_its_longest_live_suffix(
    text: list[int], context: list[int]
) -> None:
    index, cursor = SuffixIndex(DEPTH), Cursor()
    for token in text:
        index.append(cursor, token)
    counts = count_substrings([text])
    want = max(
        (n for n in range(1, DEPTH) if n <= len(context) and counts[tuple(context[-n:])]),
        default=0,
    )
    matches = list(index.match(context))
    assert max((m for _, m in matches), default=0) == want
    for state, matched in matches:
        assert state == state_of(index, tuple(context[-matched:]))


def test_the_structure_costs_at_most_two_states_a_token() -> None:
    for text in (
        [1] * 3000,
        list(range(3000)),
        [1, 2, 3] * 1000,
        [i * i % 17 for i in range(3000)],
    ):
        index, cursor = SuffixIndex(24), Cursor()
        for token in text:
            index.append(cursor, token)
        assert index.states <= 2 * len(text) + 1
        assert len(cursor.tail) <= 24
