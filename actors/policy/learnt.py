"""The policy actor's side of `policies.pooled`: reports in, their sum out, at a bounded rate.

Every report changes the sum a little. It is made anew every few seconds at most: verifiers begin
from it, they do not follow it, and each new one is sent to all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from actors.policy.errors import ReportRefused
from actors.policy.messages import contribution_messages, contribution_of, tally_messages, totals_of
from pilotfish.v1 import control_pb2 as pb
from policies.pooled import Contribution, Pool, reported, summed, thinned

logger = logging.getLogger(__name__)

PUBLISH_EVERY_S = 5.0


class Learnt:
    """What verifiers have reported, and `published`, the sum as of the last `publish`."""

    def __init__(self) -> None:
        self.published: list[pb.Tally] = []
        self._pool: Pool = {}
        self._news = False
        self._summed_s: float | None = None

    def hear(self, report: pb.VerifierStatus, now_s: float) -> None:
        """Raises ReportRefused, and then has taken nothing."""
        if report.tally_sequence:
            newest = Contribution(report.tally_sequence, now_s, totals_of(report.tallies))
            self._pool, news = reported(self._pool, report.verifier, newest)
            self._news = self._news or news

    def publish(self, now_s: float) -> bool:
        """Whether `published` is another one now."""
        rested = self._summed_s is None or now_s - self._summed_s >= PUBLISH_EVERY_S
        if not self._news or not rested:
            return False
        self._pool = thinned(self._pool, now_s)
        before, self.published = self.published, tally_messages(summed(self._pool, now_s))
        self._news, self._summed_s = False, now_s
        return before != self.published

    def kept(self, now_s: float) -> list[pb.Contribution]:
        """For the state file."""
        return contribution_messages(sorted(thinned(self._pool, now_s).items()), now_s)

    def restore(self, contributions: Iterable[pb.Contribution], now_s: float) -> None:
        """Beside what has been heard already; one that cannot be is left out, and said."""
        for message in contributions:
            try:
                newest = contribution_of(message, now_s)
            except ReportRefused as error:
                logger.warning("the kept state has a bad part, which is left out: %s", error)
                continue
            self._pool, news = reported(self._pool, message.verifier, newest)
            self._news = self._news or news
