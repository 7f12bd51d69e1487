"""What a verifier knows of its drafters and of its sessions on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from actors.contracts import Draft, SessionKey, SessionView
from actors.exchange.limits import MAX_BLOCK
from actors.exchange.link import Link
from actors.exchange.status import BlockCounts, LinkRecord, Reason
from actors.sampling.law import TokenLaw
from pilotfish.v1 import exchange_pb2 as pb
from policies import breaker as brk
from policies import waiting
from policies.reconcile import Reconciled, reconcile

MAX_ASKS = 4
"""Unanswered asks a session keeps the times of; older ones are given up."""

LAW_EVERY = 8

MAX_BLOCKS = 2
"""Blocks a session keeps: the newest, and one it may be the tail of."""


@dataclass(eq=False, slots=True)
class Home:
    """One drafter: its link, its breaker, its arrivals, and who lives there."""

    link: Link
    breaker: brk.Breaker = field(default_factory=brk.Breaker)
    arrivals: waiting.Arrivals = field(default_factory=waiting.Arrivals)
    unread: int = 0
    counts: BlockCounts = field(default_factory=BlockCounts)
    sessions: set[str] = field(default_factory=set)
    full_until_s: float = 0.0
    draining: bool = False
    _law: waiting.ArrivalLaw | None = None

    @property
    def gives_law(self) -> bool:
        return self.link.info is not None and self.link.info.gives_law

    @property
    def needs_features(self) -> bool:
        return self.link.info is not None and self.link.info.needs_features

    @property
    def mechanism(self) -> str:
        return self.link.info.mechanism if self.link.info else self.link.endpoint.mechanism

    @property
    def max_block(self) -> int:
        """The longest block that may be asked of it; 0 is not known yet."""
        return (self.link.info.max_block or MAX_BLOCK) if self.link.info else 0

    @property
    def timings(self) -> tuple[tuple[int, int, float], ...]:
        return self.link.info.timings if self.link.info else ()

    def up(self, now_s: float) -> bool:
        """Whether it may be asked: connected, and not resting."""
        return self.link.up and brk.admission(self.breaker, now_s) != "none"

    @property
    def max_context(self) -> int:
        return self.link.info.max_context if self.link.info else 0

    @property
    def law(self) -> waiting.ArrivalLaw | None:
        """Of the arrivals so far; a full window is read anew with every few of them."""
        few = LAW_EVERY if len(self.arrivals.samples) >= waiting.WINDOW else 1
        if self.unread >= few:
            self._law, self.unread = waiting.arrival_law(self.arrivals), 0
        return self._law

    def arrived(self, seconds: float) -> None:
        self.arrivals = waiting.arrived(self.arrivals, seconds)
        self.unread += 1

    def given_up(self, seconds: float) -> None:
        self.arrivals = waiting.given_up(self.arrivals, seconds)
        self.unread += 1

    def record(self) -> LinkRecord:
        link = self.link
        isolated = not self.breaker.closed
        return LinkRecord(
            drafter=link.endpoint.name,
            address=link.endpoint.address,
            mechanism=self.mechanism,
            up=link.up and not isolated,
            state="isolated" if link.up and isolated else link.state,
            detail=link.detail,
            pid=link.pid,
            sessions=len(self.sessions),
            frames_sent=link.frames_sent,
            frames_received=link.frames_received,
            blocks_used=self.counts.used,
            blocks_stale=self.counts.stale,
            blocks_late=self.counts.late,
            blocks_answered=self.counts.answered,
            draft_s=self.counts.draft_s,
            block_s=self.counts.block_s,
            rtt_us=link.rtt_us,
            busy_share=link.busy_share,
            faults=dict(self.counts.faults),
        )


@dataclass(eq=False, slots=True)
class Held:
    """A block that has come, what its tokens were drawn from, and who drafted it."""

    block: pb.Block
    law: tuple[TokenLaw, ...] | None
    mechanism: str
    ahead: bool = False
    used: bool = False


@dataclass(eq=False, slots=True)
class PortSession:
    """One request. key and home are None together: no drafter has it.

    length: committed tokens that the drafter has or will have. promised, seeded: feature rows that
    its Open said would follow, and those sent; unseeded: some are not. warming: the drafter is not
    known to have them yet. asked, answered: the newest round that a block was asked for, and that
    one came for; stale: that one was on other tokens; cold: it says so. overtaken: the last block
    that came too late, see `Gathered`. tails: see `PortOptions`.
    """

    view: SessionView
    tails: bool = True
    key: SessionKey | None = None
    home: Home | None = None
    length: int = 0
    reason: Reason = "no-drafter"
    unseeded: bool = False
    promised: int = 0
    seeded: int = 0
    warming: bool = False
    blocks: deque[Held] = field(default_factory=lambda: deque(maxlen=MAX_BLOCKS))
    asks: dict[int, float] = field(default_factory=dict)
    asked: int = -1
    answered: int = -1
    stale: bool = False
    cold: bool = False
    overtaken: tuple[int, int] | None = None
    silence: brk.Silence = field(default_factory=brk.Silence)
    faults: int = 0
    retry_s: float = 0.0

    def settle(self, home: Home, key: SessionKey, length: int) -> None:
        """It lives there from now on, with nothing remembered of an earlier home."""
        self.home, self.key, self.length = home, key, length
        self.unseeded = self.warming = home.needs_features
        self.promised, self.seeded = length - 1, 0
        self.asks, self.asked, self.answered = {}, -1, -1
        self.silence = brk.Silence()
        self.blocks.clear()
        home.sessions.add(self.view.request_id)

    def leave(self, reason: Reason, now_s: float) -> None:
        """Back to having no drafter; blocks that have come stay good."""
        if self.home is not None:
            self.home.sessions.discard(self.view.request_id)
            if not self.home.sessions:
                self.home.breaker = brk.left(self.home.breaker, now_s)
        self.key, self.home, self.reason = None, None, reason
        self.asks = {}

    def ask(self, round: int, now_s: float) -> None:
        """A block was asked for; the drafter's clock of silence runs."""
        if self.home is None:
            return
        if len(self.asks) >= MAX_ASKS:
            self.home.given_up(now_s - self.asks.pop(next(iter(self.asks))))
        self.asks[round] = now_s
        self.asked = round
        self.silence = brk.asked(self.silence, now_s)
        self.home.breaker = brk.ask(self.home.breaker, now_s)

    def answer(
        self, block: pb.Block, now_s: float, law: tuple[TokenLaw, ...] | None = None
    ) -> float | None:
        """A block has come. Returns the seconds since its ask, where they are known."""
        asked_s = self.asks.get(block.round)
        for round in [r for r in self.asks if r <= block.round]:
            del self.asks[round]
        ahead = block.round == self.answered  # the second of its round is the longer chain
        mechanism = self.home.mechanism if self.home else ""
        self.blocks.append(Held(block, law, mechanism, ahead))
        self.answered, self.cold = max(self.answered, block.round), block.cold
        self.warming, self.faults, self.silence = False, 0, brk.Silence()
        return None if asked_s is None else now_s - asked_s

    def age_s(self, now_s: float) -> float:
        """How long the oldest unanswered ask has waited."""
        return now_s - next(iter(self.asks.values()), now_s)

    def forget_used(self) -> None:
        """The commit has overtaken what was verified in its round. What a drafter wrote ahead is
        looked at once more: it may be the next block."""
        while self.blocks and self.blocks[0].used and not self.blocks[0].ahead:
            self.blocks.popleft()

    def take(self, verify: bool = True) -> Draft | None:
        """The best block at hand for the committed length. A block stays until the commits
        overtake it; one that goes unused is counted. One that is not to be verified is seen once
        and goes."""
        if not self.blocks:
            return None
        best: Draft | None = None
        kept: list[Held] = []
        stale = True
        for held in reversed(self.blocks):
            result = self._fit(held.block, self.view.tokens)
            stale = stale and result.fit != "use"
            if result.fit not in ("stale", "stale_epoch"):
                kept.append(held)
            elif held.block.tokens and not held.used:
                if result.fit == "stale":
                    behind, size = (
                        len(self.view.tokens) - held.block.base_len,
                        len(held.block.tokens),
                    )
                    self.overtaken = (size if result.right < behind else behind), result.right
                if self.home is not None:
                    self.home.counts.stale += 1
            if result.tokens and best is None:
                draft_us, behind = held.block.draft_us, result.right
                law = None if held.law is None else held.law[behind:]
                sure = tuple(held.block.confidence[behind:])
                best = Draft(result.tokens, held.mechanism, True, draft_us, behind, law, sure)
                if verify:
                    self._count_use(held)
        self.stale = stale
        self.blocks.clear()
        if verify or best is None:
            self.blocks.extend(reversed(kept))
        return best

    def _count_use(self, held: Held) -> None:
        if not held.used and self.home is not None:
            self.home.counts.used += 1
        held.used = True

    def _fit(self, block: pb.Block, committed: Sequence[int]) -> Reconciled:
        result = reconcile(
            base_len=block.base_len,
            block=tuple(block.tokens),
            block_epoch=block.key.epoch,
            committed=committed,
            epoch=self.key.epoch if self.key is not None else block.key.epoch,
        )
        if result.fit == "stale_tail" and not self.tails:
            # That it still fits was found out by looking at its tokens; so was whether it came.
            return Reconciled("stale", right=result.right)
        return result
