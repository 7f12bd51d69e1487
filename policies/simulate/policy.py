"""What a simulated verifier asks of its policy, and what it tells it: the same moments as a real
engine's (DESIGN §9). Any object with these methods can be simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RowView:
    """A request that writes. left: tokens it may still write beside the one it writes anyway, the
    most that is worth drafting."""

    request: int
    cohort: str
    left: int


@dataclass(frozen=True, slots=True)
class WayView:
    """up: some drafter of this way takes sessions. latency_s: median from ask to block, None while
    nothing has come."""

    up: bool
    remote: bool
    max_depth: int
    latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class StepView:
    """A step to be decided. prompt_rows: of prompts that are read in it. context: tokens that the
    step attends to."""

    now_s: float
    rows: Sequence[RowView]
    ways: Mapping[str, WayView]
    prompt_rows: int = 0
    context: float = 0.0


@dataclass(frozen=True, slots=True)
class Ask:
    """A wish for a block. shadow: it is drafted to be scored, never waited for nor verified."""

    request: int
    way: str
    depth: int
    shadow: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """What has come of an ask: tokens ready to be verified."""

    request: int
    way: str
    size: int


@dataclass(frozen=True, slots=True)
class Score:
    """One block after the fact. size: tokens that came; right: how many first ones are what the
    target wrote. A block is scored whether it was verified or not."""

    request: int
    cohort: str
    way: str
    asked: int
    size: int
    right: int


@dataclass(frozen=True, slots=True)
class Came:
    """Blocks of a way that came since the last step. draft_s: what drafting them took; trip_s:
    what they took beyond it, None where nothing was sent."""

    way: str
    sessions: int
    depth: int
    draft_s: float
    trip_s: float | None


@dataclass(frozen=True, slots=True)
class Stepped:
    """A step after the fact. rows: in the forward, prompt_rows among them. forward_s: that took;
    step_s: the whole step, waiting and own drafting included. tokens: written, by cohort."""

    rows: int
    prompt_rows: int
    forward_s: float
    step_s: float
    tokens: Mapping[str, int]
    came: Sequence[Came] = ()


class Policy(Protocol):
    def ask(self, view: StepView) -> Sequence[Ask]:
        """After a commit: what is to be drafted for the next step."""
        ...

    def worth_s(self, view: StepView, missing: Sequence[Ask]) -> float:
        """How long the step may wait for these blocks."""
        ...

    def choose(self, view: StepView, offers: Sequence[Offer]) -> Mapping[int, tuple[str, int]]:
        """By request, which block is verified and how many of its tokens; the others write one."""
        ...

    def scored(self, score: Score) -> None: ...

    def late(self, asks: Sequence[Ask]) -> None:
        """Blocks that a step went without."""
        ...

    def stepped(self, step: Stepped) -> None:
        """After the commit, before the next blocks are asked for."""
        ...

    def forget(self, request: int) -> None:
        """The request has ended."""
        ...


class Deaf:
    """What a policy does that learns nothing."""

    def scored(self, score: Score) -> None:
        pass

    def late(self, asks: Sequence[Ask]) -> None:
        pass

    def stepped(self, step: Stepped) -> None:
        pass

    def forget(self, request: int) -> None:
        pass


class Standard(Deaf):
    """Standard decode."""

    def ask(self, view: StepView) -> Sequence[Ask]:
        return ()

    def worth_s(self, view: StepView, missing: Sequence[Ask]) -> float:
        return 0.0

    def choose(self, view: StepView, offers: Sequence[Offer]) -> Mapping[int, tuple[str, int]]:
        return {}


class Fixed(Deaf):
    """One way and one D for everybody, as servers without a policy have it: every block that came
    is verified whole, and a step waits up to `patience_s` for it."""

    def __init__(self, way: str, depth: int, patience_s: float = 0.05) -> None:
        self.way, self.depth, self.patience_s = way, depth, patience_s

    def ask(self, view: StepView) -> Sequence[Ask]:
        if (way := view.ways.get(self.way)) is None or not way.up:
            return ()
        depths = ((row, min(self.depth, row.left, way.max_depth)) for row in view.rows)
        return [Ask(row.request, self.way, depth) for row, depth in depths if depth > 0]

    def worth_s(self, view: StepView, missing: Sequence[Ask]) -> float:
        return self.patience_s

    def choose(self, view: StepView, offers: Sequence[Offer]) -> Mapping[int, tuple[str, int]]:
        return {offer.request: (offer.way, offer.size) for offer in offers}
