"""What a verifier says to the policy actor and makes of its answer, whatever is lost between. Pure.

Tallies are totals (`policies.tally`), so they are left out only where the policy actor that speaks
is known to have them; a new term is a new policy actor, which has nothing. Where several were
started, one speaks: the others are told how often in a row they were met, so that one of them takes
its place when it is gone (`policies.reign`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors.policy.messages import tally_messages
from cluster.deployments.speaking import ASK_AGAIN_S
from pilotfish.v1 import control_pb2 as pb
from policies.exchange_rate import IDLE
from policies.tally import Report

EVERY_S = 1.0
FIRST_EVERY_S = 0.2  # until a snapshot has come


class Exchanging:
    """One verifier's side. (term, version): of the newest snapshot; (0, 0) before the first."""

    def __init__(self) -> None:
        self.term = 0
        self.version = 0
        self._config: pb.PolicyConfig | None = None
        self._sent = 0  # the tally in the newest report, 0 where it is left out
        self._known = 0  # the newest tally that the policy actor of this term has
        self._mute = False  # it has refused one
        self._pause_s = 0.0
        self._superseded = 0  # times in a row that the wrong one of several was asked

    def stamp(self, status: pb.VerifierStatus) -> None:
        """By which configuration this verifier serves."""
        if self._config is not None:
            status.config.CopyFrom(self._config)

    def report(self, status: pb.VerifierStatus, tally: Report | None) -> pb.VerifierStatus:
        """`status` with what the policy actor lacks of the tally."""
        report = pb.VerifierStatus()
        report.CopyFrom(status)
        self.stamp(report)
        report.superseded = self._superseded
        self._sent = 0
        if tally is not None and tally.sequence > self._known and not self._mute:
            report.tallies.extend(tally_messages(tally.totals))
            report.tally_sequence = self._sent = tally.sequence
        return report

    def answered(self, newer: pb.PolicySnapshot | None) -> pb.PolicySnapshot | None:
        """After the answer to the newest report: the snapshot, where it is to be taken."""
        self._known = self._sent or self._known
        self._superseded = 0
        if newer is None or (newer.term, newer.version) <= (self.term, self.version):
            return None
        return newer

    def taken(self, snapshot: pb.PolicySnapshot) -> None:
        """The engine has it; until then it is asked for again."""
        if snapshot.term != self.term:
            # Before the first term it was this very one that refused.
            self._known, self._mute = self._sent, self._mute and not self.term
        self.term, self.version = snapshot.term, snapshot.version
        self._pause_s = snapshot.exchange_ms / 1e3
        self._config = snapshot.config if snapshot.HasField("config") else None

    def pause_s(self, *, busy: bool) -> float:
        """Until the next exchange; a verifier without requests has less to say, and nobody drafts
        for it meanwhile. The wrong one of several was asked: another one, at once."""
        if self._superseded:
            return ASK_AGAIN_S
        if not self.term:
            return FIRST_EVERY_S
        return max(EVERY_S, self._pause_s) * (1.0 if busy else IDLE)

    def refused(self) -> None:
        """The policy actor will not have what was sent: its snapshots matter more than our
        tallies, which it gets no more."""
        self._mute = True
        self._superseded = 0

    def superseded(self) -> None:
        """Who was asked says that another policy actor speaks."""
        self._superseded += 1


def tally_of(stats: Mapping[str, Any]) -> Report | None:
    """Of `EngineService.stats()`; None where no policy learns."""
    tally = stats.get("tally")
    return tally if isinstance(tally, Report) else None
