"""The served policy in a simulated verifier: whatever decides by `policies.choice_records.Policy`.

It decides after each commit for the step that follows, prices waits by `policies.waiting` with the
survival it planned on, and hears of each step without prompts what the engine would tell it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from policies.choice import Arm, Group
from policies.choice_records import Decision, Drafted, Moment, Outcome, Policy, Turning
from policies.choice_rows import Offer as RowOffer
from policies.estimate import Scored
from policies.simulate.policy import Ask, Offer, Score, Stepped, StepView
from policies.waiting import worths


class Chosen:
    """step_s: expected seconds by rows, for the worth of waiting (the policy's own estimate where
    it has one)."""

    def __init__(self, policy: Policy, step_s: Callable[[int], float]) -> None:
        self.policy, self._step_s = policy, step_s
        self._step = 0
        self._moment: Moment | None = None
        self._decision: Decision | None = None
        self._cohorts: dict[int, str] = {}
        self._arms: dict[str, Arm] = {}
        self._blocks: dict[tuple[str, str], list[Scored]] = {}
        self._drafted: list[Drafted] = []

    def ask(self, view: StepView) -> Sequence[Ask]:
        self._step += 1
        self._turn(view)
        for name, way in view.ways.items():
            self._arms.setdefault(name, Arm(name, way.remote, way.max_depth))
        self._moment = self._now(view)
        self._decision = decision = self.policy.decide(self._moment)
        asks: list[Ask] = []
        for row in view.rows:
            plan = decision.plans[row.cohort]
            if plan.arm is not None and (depth := min(plan.ask, row.left)) > 0:
                asks.append(Ask(row.request, plan.arm.mechanism, depth))
        if (shadow := decision.shadow) is not None:
            rows = [row for row in view.rows if row.cohort == shadow.cohort and row.left > 0]
            asks += [
                Ask(row.request, shadow.arm.mechanism, min(shadow.depth, row.left), shadow=True)
                for row in rows[: shadow.rows]
            ]
        return asks

    def _turn(self, view: StepView) -> None:
        """New requests are other texts."""
        new = Counter(row.cohort for row in view.rows if row.request not in self._cohorts)
        if not new:
            return
        self._cohorts.update((row.request, row.cohort) for row in view.rows)
        if isinstance(self.policy, Turning):
            counts = Counter(row.cohort for row in view.rows)
            self.policy.turned({cohort: count / counts[cohort] for cohort, count in new.items()})

    def worth_s(self, view: StepView, missing: Sequence[Ask]) -> float:
        if self._decision is None:
            return 0.0
        plans = self._decision.plans
        chances = [list(plans[self._cohorts[ask.request]].survive)[: ask.depth] for ask in missing]
        certain = [[1.0] * len(chance) for chance in chances]
        depths = [len(chance) for chance in chances]
        writers = max(1, len(view.rows))
        return sum(worths(chances, certain, depths, writers, self._step_s))

    def choose(self, view: StepView, offers: Sequence[Offer]) -> Mapping[int, tuple[str, int]]:
        if self._decision is None or self._moment is None:
            return {}
        plans, left = self._decision.plans, {row.request: row.left for row in view.rows}
        mine = [
            offer
            for offer in offers
            if (arm := plans[self._cohorts[offer.request]].arm) and arm.mechanism == offer.way
        ]
        told = [
            RowOffer(self._cohorts[offer.request], offer.size, left=left[offer.request])
            for offer in mine
        ]
        rows = self.policy.rows(self._moment, self._decision, told)
        return {
            offer.request: (offer.way, row.depth)
            for offer, row in zip(mine, rows, strict=True)
            if row.depth
        }

    def scored(self, score: Score) -> None:
        size = min(score.size, score.asked)
        block = Scored(score.asked, size, min(score.right, size), verified=False)
        self._blocks.setdefault((score.cohort, score.way), []).append(block)

    def late(self, asks: Sequence[Ask]) -> None:
        """What is late is scored whole when it comes."""

    def stepped(self, step: Stepped) -> None:
        self._drafted += [
            Drafted(self._arms[came.way], came.sessions, came.depth, came.draft_s, came.trip_s)
            for came in step.came
        ]
        if step.prompt_rows or self._moment is None or self._decision is None:
            return
        blocks, self._blocks = self._blocks, {}
        drafted, self._drafted = self._drafted, []
        self.policy.learn(
            Outcome(
                self._moment,
                self._decision,
                step.rows,
                step.forward_s,
                step.step_s,
                step.tokens,
                blocks,
                drafted,
            )
        )

    def forget(self, request: int) -> None:
        self._cohorts.pop(request, None)

    def _now(self, view: StepView) -> Moment:
        most = max((way.max_depth for way in view.ways.values()), default=0)
        groups = Counter((row.cohort, min(row.left, most)) for row in view.rows)
        return Moment(
            self._step,
            [Group(cohort, count, left) for (cohort, left), count in sorted(groups.items())],
            [self._arms[name] for name, way in view.ways.items() if way.up],
            context=round(view.context),
            other_rows=view.prompt_rows,
        )
