"""Counted suffix automaton: how often each context was followed by each token.

A suffix tree cut at depth d, kept as a suffix automaton: a state is a set of substrings with the
same end positions, so the text costs at most two states a token where a trie would cost d nodes.
Counts are exact for every substring of at most d tokens: a new token adds one to the states of its
own suffixes, at most d of them. Each context of at most d - 1 tokens also knows its most frequent
next token (the latest among equals), so a draft is read off without a search.

Many texts share one automaton, one after the other: a text is appended whole before the next one
starts. A text may be retired, which takes its counts back; its states stay, dead, until the owner
builds anew. Sources: Blumer et al. 1985 (automaton); SuffixDecoding,
arXiv 2411.04975 (counts, budget, score).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

ROOT = 0
_NONE = -1


@dataclass(slots=True)
class Cursor:
    """The end of one text in the automaton.

    last: state of the whole text. anchor: state of its longest suffix of at most d tokens.
    tail: states of all its non-empty suffixes of at most d tokens, longest first.
    """

    last: int = ROOT
    anchor: int = ROOT
    tail: list[int] = field(default_factory=list)


class SuffixIndex:
    """States are numbers into parallel lists; 0 is the empty context."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._next: list[dict[int, int]] = [{}]
        self._link = [_NONE]
        self._len = [0]  # longest substring of the state; the shortest is _len[_link] + 1
        self._count = [0]  # live occurrences; exact when the shortest has at most depth tokens
        self._best = [_NONE]

    @property
    def states(self) -> int:
        return len(self._len)

    # -- growth ---------------------------------------------------------------------------------

    def append(self, cursor: Cursor, token: int) -> None:
        """One more token of the cursor's text. Amortised O(1) for the structure, O(depth) at most
        for the counts."""
        context = cursor.anchor
        cursor.last = self._extend(cursor.last, token)
        cursor.anchor, cursor.tail = self._advance(context, token)
        following, link, count, best = self._next, self._link, self._count, self._best
        for state in cursor.tail:
            count[state] += 1
        # The contexts are read after the structure has changed: one may just have been split.
        while context != ROOT:
            top = best[context]
            if top != token:
                edges = following[context]
                if top == _NONE or count[edges[token]] >= count[edges[top]]:
                    best[context] = token
            context = link[context]

    def retire(self, tokens: Sequence[int]) -> Iterator[None]:
        """Take back the counts of a text that was appended whole; a step a token."""
        count, following, best = self._count, self._next, self._best
        anchor, contexts = ROOT, list[int]()
        for token in tokens:
            anchor, tail = self._advance(anchor, token)
            for state in tail:
                count[state] -= 1
            for state in contexts:
                if best[state] == token:
                    edges = following[state]
                    best[state] = max(edges, key=lambda t: (count[edges[t]], -t))
            contexts = tail
            yield

    def _advance(self, anchor: int, token: int) -> tuple[int, list[int]]:
        """The anchor and the tail one token on. The anchor's text grows to at most depth + 1
        tokens, so one suffix link is enough to cut it back."""
        link, length = self._link, self._len
        anchor = self._next[anchor][token]
        if length[link[anchor]] >= self.depth:
            anchor = link[anchor]
        tail, state = [], anchor
        while state != ROOT:
            tail.append(state)
            state = link[state]
        return anchor, tail

    def _extend(self, last: int, token: int) -> int:
        """The state of (last's longest text + token), made if it is not there."""
        following, link, length = self._next, self._link, self._len
        found = following[last].get(token)
        if found is not None:
            return found if length[found] == length[last] + 1 else self._split(last, token, found)
        state = self._add(length[last] + 1)
        at = last
        while at != _NONE and token not in following[at]:
            following[at][token] = state
            at = link[at]
        if at == _NONE:
            link[state] = ROOT
            return state
        found = following[at][token]
        link[state] = found if length[found] == length[at] + 1 else self._split(at, token, found)
        return state

    def _split(self, at: int, token: int, state: int) -> int:
        """Part the substrings of `state` that are suffixes of (at's longest + token) from the
        longer ones; until now they had the same occurrences, hence the same counts."""
        following, link = self._next, self._link
        short = self._add(self._len[at] + 1)
        following[short] = following[state].copy()
        self._count[short] = self._count[state]
        self._best[short] = self._best[state]
        link[short], link[state] = link[state], short
        while at != _NONE and following[at].get(token) == state:
            following[at][token] = short
            at = link[at]
        return short

    def _add(self, length: int) -> int:
        self._next.append({})
        self._link.append(_NONE)
        self._len.append(length)
        self._count.append(0)
        self._best.append(_NONE)
        return len(self._len) - 1

    # -- reading --------------------------------------------------------------------------------

    def match(self, context: Sequence[int]) -> Iterator[tuple[int, int]]:
        """(state, matched tokens) of the suffixes of `context` that live texts contain, longest
        first, one for each set of occurrences. Shorter than depth, so that all are counted."""
        following, link, length = self._next, self._link, self._len
        state, matched = ROOT, 0
        for token in context[max(0, len(context) - self.depth + 1) :]:
            while state != ROOT and token not in following[state]:
                state = link[state]
                matched = length[state]
            if token in following[state]:
                state = following[state][token]
                matched += 1
        while state != ROOT:
            if self._count[state] > 0:
                yield state, matched
            state = link[state]
            matched = length[state]

    def contexts(self, cursor: Cursor) -> Iterator[tuple[int, int]]:
        """As `match`, for the cursor's own text: its suffixes that occur earlier in it too."""
        for state in cursor.tail:
            shortest = self._len[self._link[state]] + 1
            if shortest < self.depth and self._count[state] > 1:
                yield state, min(self._len[state], self.depth - 1)

    def walk(self, state: int, ends: Sequence[int]) -> Iterator[tuple[int, float]]:
        """The most frequent continuation of a context: (token, its share of what followed).

        ends: states whose newest occurrence is the end of the live text: nothing followed it.
        """
        following, link, length, count = self._next, self._link, self._len, self._count
        while True:
            token = self._best[state]
            if token == _NONE:
                return
            followed = count[state] - (state in ends)
            state = following[state][token]
            if count[state] <= 0:
                return
            yield token, count[state] / followed
            # Back to a context short enough for its continuations to be counted.
            if length[link[state]] >= self.depth - 1:
                state = link[state]
