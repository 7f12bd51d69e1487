"""What a policy is told before a step, what it answers, and what it hears after it.

`Policy` is all that a driver has to know: the engine, a simulator and the tests of regret drive any
policy through it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from policies.choice import Arm, Group
from policies.choice_reasons import Reason
from policies.choice_rows import Offer, Row
from policies.control import Kind
from policies.estimate import Key, Rule, Scored


@dataclass(frozen=True, slots=True)
class Moment:
    """A step that is about to be planned. step: counts up by one. groups: who writes. arms: that
    are up. context: tokens attended to, over all sequences. other_rows: of prompts."""

    step: int
    groups: Sequence[Group]
    arms: Sequence[Arm]
    rule: Rule = "coupled"
    context: int = 0
    other_rows: int = 0

    @property
    def writers(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def counts(self) -> dict[str, int]:
        """Requests that write, by cohort."""
        counts: dict[str, int] = {}
        for group in self.groups:
            counts[group.cohort] = counts.get(group.cohort, 0) + group.count
        return counts


@dataclass(frozen=True, slots=True)
class Plan:
    """One cohort's. depth: the most that is verified of a block. ask: how many tokens to ask for;
    more than depth where more cost nothing and tell something. survive: S(1) … S(depth), as
    expected before any block of the step was drawn."""

    arm: Arm | None
    depth: int
    ask: int
    reason: Reason
    survive: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Shadow:
    """Blocks to draft and not to verify: `rows` requests of the cohort, `depth` tokens each.
    again: of texts that its drafter has read."""

    cohort: str
    arm: Arm
    depth: int
    rows: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """kind: "control" is a step of standard decode for everyone, whatever the plans. price_s: what
    the shadow is expected to take of the target's thread."""

    plans: Mapping[str, Plan]
    kind: Kind = "policy"
    shadow: Shadow | None = None
    price_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Drafted:
    """Blocks that came in a step. draft_s: what drafting them took; trip_s: what they took beyond
    it, None where nothing was sent."""

    arm: Arm
    sessions: int
    depth: int
    draft_s: float
    trip_s: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A step without prompts, after the fact. rows: in the target's forward. forward_s: that took;
    step_s: the whole step, waiting included. tokens: written, by cohort. blocks: scored in this
    step, shadows among them.

    Several steps of one kind, batch and period may be told at once: `steps` of them, step_s and
    tokens of all together, the rest of the last."""

    moment: Moment
    decision: Decision
    rows: int
    forward_s: float
    step_s: float
    tokens: Mapping[str, float]
    blocks: Mapping[Key, Sequence[Scored]] = field(default_factory=dict)
    drafted: Sequence[Drafted] = ()
    steps: int = 1


class Policy(Protocol):
    """Decides each step and learns from it."""

    def decide(self, moment: Moment) -> Decision:
        """Before blocks are asked for."""
        ...

    def rows(self, moment: Moment, decision: Decision, offers: Sequence[Offer]) -> list[Row]:
        """When blocks are there: how much of each is verified."""
        ...

    def learn(self, outcome: Outcome) -> None:
        """After the step."""
        ...


@runtime_checkable
class Turning(Protocol):
    """A policy to which it matters that requests end and others begin."""

    def turned(self, shares: Mapping[str, float]) -> None:
        """By cohort, so large a share of its requests is new."""
        ...
