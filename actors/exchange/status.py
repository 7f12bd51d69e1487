"""What a port counts, and why a row has no block: closed sets, fit for metric labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Reason = Literal[
    "no-drafter",  # none is up, or none has been found for the session yet
    "late",  # the block has not come in the time that waiting is worth
    "stale",  # what came was drafted on other tokens
    "cold",  # the drafter has not got the session's features, or not read its prompt, yet
    "fault",  # the drafter failed on this session; it is tried again after a pause
    "overloaded",  # the drafter has no room
    "isolated",  # the drafter has been silent or failing; it rests
    "context",  # the drafter's context ends before this row's
    "depth-0",  # nothing was asked
    "empty",  # the drafter had nothing to propose
]


@dataclass(frozen=True, slots=True)
class LinkRecord:
    """One drafter as its verifier sees it. state: "connecting", "up", "down", "refused" or
    "isolated"; detail says why it is not up."""

    drafter: str
    address: str
    mechanism: str
    up: bool
    state: str
    detail: str = ""
    pid: int = 0
    sessions: int = 0
    frames_sent: int = 0
    frames_received: int = 0
    blocks_used: int = 0
    blocks_stale: int = 0
    blocks_late: int = 0
    blocks_answered: int = 0
    draft_s: float = 0.0
    block_s: float = 0.0
    rtt_us: int = 0
    busy_share: float = 0.0
    faults: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class BlockCounts:
    """Of one drafter. late counts rows that ran without; stale counts blocks thrown away.
    answered, draft_s, block_s: blocks that came, the seconds it took to compute them, and those
    from asking to arrival, sums."""

    used: int = 0
    stale: int = 0
    late: int = 0
    answered: int = 0
    draft_s: float = 0.0
    block_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)

    def came(self, draft_s: float, block_s: float) -> None:
        self.answered += 1
        self.draft_s += draft_s
        self.block_s += block_s
