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

NO_GAIN = "no-gain"
"""Why a row runs at D = 0: drafting was expected to bring less than it costs."""
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
        """A sequence starts to run, for the first time or again after preemption."""
        if seq.request.max_draft_len == 0:
            return
        if not seq.admissions:
            seq.scout = self._opened % SCOUTS == 0
            self._opened += 1
        seq.admissions += 1
        self._suit(seq)

    def rest(self, resting: bool, running: Iterable[Sequence]) -> None:
        """From now on: no sessions but the scouts', or everybody's again. Those that start to run
        in this step come through `admit`."""
        if resting == self._resting:
            return
        self._resting = resting
        for seq in running:
            if seq.admissions:
                self._suit(seq)

    def _suit(self, seq: Sequence) -> None:
        """Open or close its session, as the time asks."""
        wanted = seq.scout or not self._resting
        if wanted and not seq.drafting:
            self._port.open(seq)
            seq.drafting, seq.told = True, len(seq.tokens)
        elif seq.drafting and not wanted:
            self._port.close(seq.request_id, NO_GAIN)
            seq.drafting = False
            seq.depth = seq.asked = 0
            seq.depth_reason = NO_GAIN

    def prefilled(self, seq: Sequence) -> None:
        """A chunk of its prompt has run."""
        if seq.drafting:
            self._port.prefilled(seq.request_id, seq.kv_len)

    def commit(self, decided: Iterable[Sequence]) -> None:
        """After a round, to the sequences that wrote in it: tell the drafters that are asked."""
        self._port.commit(
            [
                self._news(seq, seq.asked)
                for seq in decided
                if seq.drafting
                and (seq.asked or seq.shadow or len(seq.tokens) - seq.told >= MOST_UNTOLD)
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

    def _news(self, seq: Sequence, depth: int) -> PortCommit:
        told, seq.told = seq.told, len(seq.tokens)
        return PortCommit(
            seq.request_id,
            seq.round,
            told,
            tuple(seq.tokens[told:]),
            depth,
            seq.arm,
            seq.shadow,
        )
