"""Stop strings, exact to the token and independent of how tokens come in blocks."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Feeds on the text of one token at a time and releases what can no longer be cut.

    The first token that completes a stop string ends the output. Of several completed by the same
    token the one that begins earliest wins, then the shorter. Text that may be the beginning of
    a stop string is held back; with `include` nothing is, because the stop string is shown.

    Law: between two feeds `_tail` is the longest suffix of the text that is a proper prefix of a
    stop string, so a match that ends in the next token's text begins inside `_tail` or after it.
    """

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        self._stops = tuple(stops)
        self.include = include
        self._prefixes = {stop[:n] for stop in stops for n in range(1, len(stop))}
        self._longest = max(map(len, self._prefixes), default=0)
        self._tail = ""
        self.hit: str | None = None
        self.cut = 0  # characters of the last feed and before it that the hit cut off

    def feed(self, text: str, armed: bool = True) -> str:
        """The text that may be shown now. `armed` is False while min_tokens forbids a stop."""
        if not self._stops:
            return text
        before = len(self._tail)
        shown = before if self.include else 0
        buffer = self._tail + text
        found = self._find(buffer, before) if armed else None
        if found is not None:
            start, self.hit = found
            end = start + len(self.hit) if self.include else start
            self._tail = ""
            self.cut = len(buffer) - end
            return buffer[shown:end]
        self._tail = self._open_end(buffer)
        until = len(buffer) if self.include else len(buffer) - len(self._tail)
        return buffer[shown:until]

    def finish(self) -> str:
        """The text held back, when the output ends for another reason."""
        held, self._tail = self._tail, ""
        return "" if self.include else held

    def _find(self, buffer: str, before: int) -> tuple[int, str] | None:
        """(start, stop string) of the match to take among those that end after `before`."""
        starts = ((buffer.find(s, max(0, before - len(s) + 1)), s) for s in self._stops)
        matches = [(start, len(s), s) for start, s in starts if start >= 0]
        if not matches:
            return None
        start, _, stop = min(matches)
        return start, stop

    def _open_end(self, buffer: str) -> str:
        for n in range(min(self._longest, len(buffer)), 0, -1):
            if buffer[-n:] in self._prefixes:
                return buffer[-n:]
        return ""
