"""What a policy's state says about one step: costs of this batch, outlooks of every arm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from policies import control_ratio as control
from policies import estimate, estimate_cost, estimate_draft
from policies.choice import Arm, Batch, Costs, Pick
from policies.choice_explore import Purse
from policies.choice_hold import CERTAIN, HYSTERESIS, Held
from policies.choice_records import Decision, Moment, Plan
from policies.estimate import ENOUGH_BLOCKS, Estimate, Key, Outlook

FREE = 0.01
"""A deeper block is asked for where that takes no more than this share of the chosen one's time,"""
FREE_SHARE = 0.003
"""or than this share of a step."""


@dataclass(frozen=True, slots=True)
class State:
    """All that a policy knows. draft: by arm. changed: the step of a cohort's last change of text.
    ledgers: of the control, by cohort."""

    step_cost: estimate_cost.StepCost
    draft: Mapping[Arm, estimate_draft.DraftCost]
    estimates: Mapping[Key, Estimate] = field(default_factory=dict)
    held: Held = field(default_factory=Held)
    purse: Purse = field(default_factory=Purse)
    changed: Mapping[str, int] = field(default_factory=dict)
    ledgers: Mapping[str, control.Ledger] = field(default_factory=dict)


class View:
    """`depth`: the configured D, which bounds every arm's. Arms without a known price do not
    exist. counts, limits: by cohort, requests and the most that any of them may draft."""

    def __init__(self, state: State, moment: Moment, depth: int) -> None:
        self._state, self.moment, self._depth = state, moment, depth
        self.arms = [arm for arm in moment.arms if arm in state.draft] if depth else []
        self.counts = moment.counts
        self.limits: dict[str, int] = {}
        for group in moment.groups:
            self.limits[group.cohort] = max(self.limits.get(group.cohort, 0), group.limit)
        self.cohorts = sorted(self.counts)
        cost, draft, writers = state.step_cost, state.draft, moment.writers
        self.costs = Costs(
            lambda n: estimate_cost.step_s(cost, n, writers, moment.context),
            lambda arm, sessions, depth: estimate_draft.block_s(
                draft[arm], sessions, depth, remote=arm.remote
            ),
            moment.other_rows,
        )

    def outlook(self, cohort: str, arm: Arm, sigmas: float = 0.0) -> Outlook:
        """What a block is expected to bring, proven or not."""
        depth, step = self.deepest(arm), self.moment.step
        known = self._state.estimates
        return estimate.outlook(known, cohort, arm.mechanism, depth, step, sigmas)

    @cached_property
    def batch(self) -> Batch:
        """With the arms of which there is evidence enough."""
        proven = {
            cohort: {
                arm: self.outlook(cohort, arm)
                for arm in self.arms
                if self.evidence(cohort, arm) >= ENOUGH_BLOCKS
            }
            for cohort in self.cohorts
        }
        return Batch(self.moment.groups, proven, self.costs)

    @cached_property
    def hopeful(self) -> Batch:
        """With every arm, at its rates' upper 90% bound."""
        views = {c: {arm: self.outlook(c, arm, CERTAIN) for arm in self.arms} for c in self.cohorts}
        return Batch(self.moment.groups, views, self.costs)

    def promises(self, cohort: str, arm: Arm, now: Pick) -> bool:
        """Whether the cohort might leave what it does now for this arm, at its rates' upper 90%
        bound or at those of the best text of late; all other cohorts at standard decode."""
        best = estimate.best(self._state.estimates, cohort, arm.mechanism, self.moment.step)
        least = (1.0 + HYSTERESIS) * self.batch.rate({cohort: now})

        def reaches(hoped: Outlook) -> bool:
            batch = Batch(self.moment.groups, {cohort: {arm: hoped}}, self.costs)
            return batch.best_for(cohort, {})[1] > least

        return reaches(self.outlook(cohort, arm, CERTAIN)) or reaches(best)

    def evidence(self, cohort: str, arm: Arm) -> float:
        """In blocks."""
        return estimate.evidence(self._state.estimates, cohort, arm.mechanism, self.moment.step)

    @property
    def standard_s(self) -> float:
        """Of a step of standard decode."""
        return self.costs.step_s(float(self.moment.writers + self.moment.other_rows))

    def deepest(self, arm: Arm) -> int:
        """The most tokens that may be asked of it."""
        return min(arm.max_depth, self._depth)

    def ask(self, arm: Arm, sessions: int, depth: int) -> int:
        """How many tokens to ask for when `depth` are verified: more, where they are free."""
        price = self.costs.block_s
        least = price(arm, sessions, depth)
        most = least + max(FREE * least, FREE_SHARE * self.standard_s)
        free = (d for d in range(self.deepest(arm), depth, -1) if price(arm, sessions, d) <= most)
        return next(free, depth)

    def spent_s(self, decision: Decision) -> float:
        """Expected seconds of the step's blocks: drafters work side by side."""
        asks: dict[Arm, tuple[int, int]] = {}
        for cohort, count in self.counts.items():
            plan: Plan = decision.plans[cohort]
            if plan.arm is not None:
                sessions, ask = asks.get(plan.arm, (0, 0))
                asks[plan.arm] = sessions + count, max(ask, plan.ask)
        return max((self.costs.block_s(arm, *use) for arm, use in asks.items()), default=0.0)
