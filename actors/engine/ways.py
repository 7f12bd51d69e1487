"""How one cohort's requests may be drafted for: its plan's way, and one that costs next to nothing.

Where the plan's drafter is not asked, because of this request its blocks have not paid, the cheap
one may be. What is verified of a block is bounded by the plan that it was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from actors.contracts import Draft
from actors.engine.sequence import Sequence
from actors.engine.sessions import NO_GAIN
from policies.choice import Arm
from policies.choice_reasons import Reason
from policies.choice_records import Plan

LENIENT = ("no-gain", "held", "no-evidence")
"""Reasons of plans that leave it to each request's own record."""


@dataclass(frozen=True, slots=True)
class Ways:
    """beside: a plan with another arm than `plan`, for requests that this one is not asked for."""

    plan: Plan
    beside: Plan | None = None

    def each(self) -> Iterable[Plan]:
        """In the order in which they are tried."""
        return (self.plan,) if self.beside is None else (self.plan, self.beside)

    def of(self, draft: Draft) -> Plan:
        """The plan by which this block was asked for."""
        other = self.beside
        if other is None or other.arm is None:
            return self.plan
        same = (draft.mechanism, draft.remote) == (other.arm.mechanism, other.arm.remote)
        return other if same else self.plan


def ways_of(plan: Plan, cheap: Arm | None, depth: int, *, resting: bool) -> Ways:
    """What a plan comes to where `cheap` may be asked of everybody: where a cohort's blocks do not
    pay on average, nothing is known of them, or those of another drafter pay for others, each
    request's own record decides. depth: the configured D. resting: some of the cohort's requests
    have no session, for nobody's blocks pay in such a batch."""
    if plan.reason == "wish" and resting:
        return Ways(replace(plan, reason="no-gain"))  # the policy sees that nobody may be asked
    if cheap is None or plan.arm == cheap:
        return Ways(plan)
    depth = min(depth, cheap.max_depth)
    if plan.arm is not None:
        return Ways(plan, Plan(cheap, depth, depth, "no-gain"))
    if plan.reason not in LENIENT:
        return Ways(plan)
    return Ways(Plan(cheap, 0 if plan.reason == "no-evidence" else depth, depth, plan.reason))


def most(ways: Ways | None, draft: Draft, *, weighed: bool, proven: bool) -> int:
    """How many tokens of a block may be verified. A plan's D is for its cohort's blocks on average;
    one that says how sure it is may be verified as far as was asked for, where what is verified may
    hang on what was drafted, that is unless laws are `weighed` (S16). Before there is a plan, each
    request's own record decides as soon as its drafter is `proven`: it has been right at all."""
    if ways is None:
        return 0
    plan = ways.of(draft)
    if plan.reason == "no-evidence":
        return plan.ask if proven else 0
    if not plan.depth:
        return 0
    return max(plan.depth, plan.ask) if draft.confidence and not weighed else plan.depth


def refused(ways: Ways | None, draft: Draft) -> str:
    """Why a block was not verified though it came."""
    if ways is None:
        return NO_GAIN
    plan = ways.of(draft)
    return "budget" if plan.reason == "gain" else plan.reason


def why(
    ways: Ways | None, seq: Sequence, came: Draft, kept: Draft, bound: int, depth: int
) -> Reason:
    """Why so much of a block is verified: of `came`, of which `bound` tokens might be, the first,
    `kept`. depth: the configured D."""
    count = len(kept.tokens)
    if count < min(bound, len(came.tokens)):
        return "budget"
    if count == seq.depth < depth:
        return "wish" if seq.request.max_draft_len == count else "end"
    # A plan that gains nothing leaves it to each request's own record, and this one's gains.
    if ways is None or (plan := ways.of(came)).reason in ("no-gain", "no-evidence"):
        return "gain"
    return plan.reason
