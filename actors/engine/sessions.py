"""The engine's side of its requests' sessions on drafters: who has one, and what it is told.

A drafter is told of commits when a block is asked of it, all since the last time at once. So one
whose blocks are not worth verifying just now is left in peace, and where nobody's are (a batch so
large that each drafted row costs as much as it can bring) sessions are closed altogether, but for
those of a few scouts, by whose blocks the engine notices that this has changed.
"""

from __future__ import annotations

from collections.abc import Iterable

from actors.contracts import DraftPort, PortCommit
from actors.engine.sequence import Sequence

MOST_UNTOLD = 256
"""Tokens after which a drafter is told without being asked: no message grows without end."""
SCOUTS = 16
"""One request in so many keeps its session whatever the size of the batch."""


class Sessions:
    """Sessions of the sequences that may draft."""

    def __init__(self, port: DraftPort) -> None:
        self._port = port
        self._resting = False
        self._opened = 0

    def admit(self, seq: Sequence) -> None:
        """A sequence starts to run; one that was preempted still has its session."""
        if seq.request.max_draft_len == 0 or seq.drafting:
            return
        seq.scout = seq.scout or self._opened % SCOUTS == 0
        self._opened += 1
        if not self._resting or seq.scout:
            self._open(seq)

    def rest(self, resting: bool, running: Iterable[Sequence]) -> None:
        """From now on: no sessions but the scouts', or everybody's again."""
        if resting == self._resting:
            return
        self._resting = resting
        for seq in running:
            if seq.request.max_draft_len == 0 or seq.scout:
                continue
            if resting and seq.drafting:
                self._port.close(seq.request_id, "no-gain")
                seq.drafting = False
            elif not resting and not seq.drafting:
                self._open(seq)

    def commit(self, decided: Iterable[Sequence]) -> None:
        """After a round, to the sequences that wrote in it: tell the drafters that are asked."""
        self._port.commit(
            [
                self._news(seq, seq.depth)
                for seq in decided
                if seq.drafting and (seq.depth or len(seq.tokens) - seq.told >= MOST_UNTOLD)
            ]
        )

    def close(self, seq: Sequence, reason: str, whole: bool) -> None:
        """At the end, while its features are still there. whole: its text is complete, and a
        drafter that learns from texts is to have all of it."""
        if not seq.drafting:
            return
        if whole and len(seq.tokens) > seq.told:
            self._port.commit([self._news(seq, 0)])
        self._port.close(seq.request_id, reason)
        seq.drafting = False

    def _open(self, seq: Sequence) -> None:
        self._port.open(seq)
        seq.drafting, seq.told = True, len(seq.tokens)

    def _news(self, seq: Sequence, depth: int) -> PortCommit:
        told, seq.told = seq.told, len(seq.tokens)
        return PortCommit(
            seq.request_id,
            seq.round,
            told,
            tuple(seq.tokens[told:]),
            depth,
            seq.features(told - 1, len(seq.tokens) - 1),
        )
