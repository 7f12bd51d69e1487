"""The policy as one object: pure decisions, and the state that is handed from one to the next.

Each verifier has one and decides every step by it; the policy actor's snapshot gives it what other
verifiers have learnt. It holds nothing of any request, so nothing of one reaches the next but
through its cohort's estimates, which are all in `state` for everybody to see (pitfalls S48).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from policies import choice_explore as explore
from policies import control_ratio as control
from policies import estimate, estimate_cost, estimate_draft
from policies.change import suspicious
from policies.choice import STANDARD, Arm, Pick
from policies.choice_hold import HYSTERESIS, held
from policies.choice_reasons import Reason
from policies.choice_records import Decision, Moment, Outcome, Plan, Shadow
from policies.choice_rows import Offer, Row, rows
from policies.choice_view import State, View
from policies.control import Kind, Windows
from policies.estimate import ENOUGH_BLOCKS, Estimate, Key, Scored

LOOK_EVERY = 4
"""Steps between two looks at a batch that stays as it is: a look takes some 0.2 ms."""
FRESH_STEPS = 12
"""After a change, choices wait for nothing and shadows are urgent for so long."""


class Adaptive:
    """See `policies.choice_records.Policy`. depth: the configured D, the most for anybody."""

    def __init__(
        self,
        step_cost: estimate_cost.StepCost,
        draft: Mapping[Arm, estimate_draft.DraftCost],
        *,
        depth: int = 8,
        windows: Windows | None = None,
    ) -> None:
        self.state = State(step_cost, draft)
        self.windows = Windows() if windows is None else windows
        self._depth = depth
        self._plans: dict[str, Plan] = {}
        self._batch: object = None  # what they are for, and since when
        self._at = 0
        self._unread: dict[Key, list[Scored]] = {}
        self._read = -LOOK_EVERY

    def decide(self, moment: Moment) -> Decision:
        """What is asked of whom."""
        view = View(self.state, moment, self._depth)
        ledgers = self.state.ledgers
        fallen = {c for c in view.cohorts if (of := ledgers.get(c)) is not None and of.fallen}
        kind = self.windows.kind(moment.step, returning=bool(fallen))
        plans = {
            cohort: self._in_step(plan, kind, cohort in fallen)
            for cohort, plan in self._looked(view).items()
        }
        if kind == "policy" and not estimate.shadows_count(moment.rule):
            plans = self._probe(view, plans)
        return Decision(plans, kind, self._shadow(view, plans))

    def rows(self, moment: Moment, decision: Decision, offers: Sequence[Offer]) -> list[Row]:
        """How much of each block is verified."""
        view, plans = View(self.state, moment, self._depth), decision.plans
        return rows(
            offers,
            {cohort: plan.depth for cohort, plan in plans.items()},
            {cohort: plan.survive for cohort, plan in plans.items()},
            moment.writers,
            view.costs.step_s,
            rule=moment.rule,
            spent_s=view.spent_s(decision),
            other_rows=moment.other_rows,
        )

    def learn(self, outcome: Outcome) -> None:
        """Costs and the control's account, after a step without prompts; blocks are read a few
        steps' at a time, or at once while something is new."""
        state, moment = self.state, outcome.moment
        cost = estimate_cost.observed(
            state.step_cost, outcome.rows, outcome.forward_s, moment.writers, moment.context
        )
        draft = dict(state.draft)
        for use in outcome.drafted:
            if use.arm in draft:
                draft[use.arm] = estimate_draft.observed(
                    draft[use.arm], use.sessions, use.depth, use.draft_s, use.trip_s
                )
        changed = state.changed
        if cost.alarms > state.step_cost.alarms:
            changed = {**changed, **{group.cohort: moment.step for group in moment.groups}}
        self.state = replace(
            state,
            step_cost=cost,
            draft=draft,
            purse=explore.passed(state.purse, outcome.step_s),
            changed=changed,
            ledgers=self._account(outcome),
        )
        for key, blocks in outcome.blocks.items():
            self._unread.setdefault(key, []).extend(estimate.fair(blocks, moment.rule))
        fresh = any(self._fresh(group.cohort, moment.step) for group in moment.groups)
        fresh = fresh or outcome.decision.shadow is not None
        if fresh or moment.step - self._read >= LOOK_EVERY:
            self._read_blocks(moment.step)

    def _read_blocks(self, step: int) -> None:
        state, changed, purse = self.state, dict(self.state.changed), self.state.purse
        estimates: estimate.Estimates = state.estimates
        for key, blocks in self._unread.items():
            estimates, alarm = estimate.learnt(estimates, key, blocks, step)
            if alarm:
                changed[key[0]] = step
                purse = explore.renewed(purse)
        self.state = replace(state, estimates=estimates, changed=changed, purse=purse)
        self._unread, self._read = {}, step

    # ---------------------------------------------------------------- parts

    def _fresh(self, cohort: str, step: int) -> bool:
        return step - self.state.changed.get(cohort, -FRESH_STEPS) < FRESH_STEPS

    def _looked(self, view: View) -> dict[str, Plan]:
        """The plans that hold for such a batch; looked at anew where there is reason to."""
        moment = view.moment
        batch = moment.groups, moment.arms, moment.rule, moment.other_rows
        fresh = any(self._fresh(cohort, moment.step) for cohort in view.cohorts)
        if not fresh and batch == self._batch and moment.step - self._at < LOOK_EVERY:
            return self._plans
        now, reasons = held(self.state.held, view, moment.step, fresh=fresh)
        self.state = replace(self.state, held=now)
        self._plans = {c: self._plan(view, c, now.picks[c], reasons[c]) for c in view.cohorts}
        self._batch, self._at = batch, moment.step
        return self._plans

    def _plan(self, view: View, cohort: str, pick: Pick, reason: Reason) -> Plan:
        depth = min(pick.depth, view.limits[cohort])
        if pick.arm is not None and depth:
            ask = view.ask(pick.arm, view.counts[cohort], depth)
            survive = view.outlook(cohort, pick.arm).survive[:depth]
            return Plan(pick.arm, depth, ask, reason, survive)
        if pick.arm is not None:
            return Plan(None, 0, 0, "wish")
        if reason == "no-gain":
            if not self._depth:
                reason = "off"
            elif not view.arms:
                reason = "no-drafter"
            elif not view.batch.options[cohort]:
                reason = "no-evidence"
        return Plan(None, 0, 0, reason)

    @staticmethod
    def _in_step(plan: Plan, kind: Kind, fallen: bool) -> Plan:
        """What becomes of a plan in a step of this kind."""
        if kind == "control":
            return Plan(None, 0, 0, "control")
        if fallen:
            return replace(plan, reason="probe") if kind == "probe" else Plan(None, 0, 0, "slower")
        return plan

    def _shadow(self, view: View, plans: Mapping[str, Plan]) -> Shadow | None:
        """A mechanism that a cohort is not using: one whose last blocks were a surprise, else the
        one of which is known least of late."""
        step = view.moment.step
        free = [(c, arm) for c in view.cohorts for arm in view.arms if plans[c].arm != arm]
        if not free or not estimate.shadows_count(view.moment.rule):
            return None
        never = Estimate(step=-1)
        known = self.state.estimates
        each = [known.get((c, arm.mechanism), never) for c, arm in free]
        surprises = [suspicious(of.watch) for of in each]
        ages = [step - of.step for of in each]
        cohort, arm = free[max(range(len(free)), key=lambda i: (surprises[i], ages[i]))]
        depth, sessions = view.deepest(arm), min(view.counts[cohort], explore.SHADOW_ROWS)
        lacks = view.evidence(cohort, arm) < ENOUGH_BLOCKS
        purse = explore.shadowed(
            self.state.purse,
            urgent=lacks or any(surprises) or self._fresh(cohort, step),
            draw=_draw(self.windows.seed, step),
            price_s=0.0 if arm.remote else view.costs.block_s(arm, sessions, depth),
            step_s=view.standard_s,
        )
        if purse is None:
            return None
        self.state = replace(self.state, purse=purse)
        return Shadow(cohort, arm, depth, sessions)

    def _probe(self, view: View, plans: dict[str, Plan]) -> dict[str, Plan]:
        """Where shadows say nothing: now and then the most hopeful of what is not done."""
        now = {c: Pick(plan.arm, plan.depth) for c, plan in plans.items()}
        rate = view.hopeful.rate(now)
        hopes = [
            (hope, cohort, pick)
            for cohort in view.cohorts
            for pick, hope in [view.hopeful.best_for(cohort, now)]
            if plans[cohort].reason != "slower" and pick.arm not in (None, now[cohort].arm)
        ]
        hope, cohort, pick = max(hopes, key=lambda h: h[0], default=(0.0, "", STANDARD))
        if pick.arm is None or hope <= (1.0 + HYSTERESIS) * rate:
            return plans
        sessions, writers = view.counts[cohort], view.moment.writers
        most = writers + sessions * pick.depth + view.moment.other_rows
        step_s = view.costs.step_s(most) + view.costs.block_s(pick.arm, sessions, pick.depth)
        purse = explore.probed(
            self.state.purse,
            price_s=explore.worst_loss_s(step_s, writers, rate),
            step_s=view.standard_s,
            known=view.evidence(cohort, pick.arm) >= ENOUGH_BLOCKS,
        )
        if purse is None:
            return plans
        self.state = replace(self.state, purse=purse)
        survive = view.outlook(cohort, pick.arm).survive[: pick.depth]
        return {**plans, cohort: Plan(pick.arm, pick.depth, pick.depth, "probe", survive)}

    def _account(self, outcome: Outcome) -> dict[str, control.Ledger]:
        """The control's pairs, by cohort; steps that settle after a window are left out."""
        ledgers = dict(self.state.ledgers)
        moment, kind = outcome.moment, outcome.decision.kind
        if not self.windows.steps or self.windows.settling(moment.step):
            return ledgers
        view = View(self.state, moment, self._depth)
        period, steps = self.windows.period_of(moment.step), outcome.step_s / view.standard_s
        for cohort, count in view.counts.items():
            ledger = ledgers.get(cohort, control.Ledger(period))
            ledgers[cohort] = control.judged(
                control.noted(
                    ledger,
                    period,
                    drafting=kind == "probe" if ledger.fallen else kind == "policy",
                    tokens=outcome.tokens.get(cohort, 0.0),
                    standard=count * steps,
                )
            )
        return ledgers


def _draw(seed: str, step: int) -> float:
    """Uniform in [0, 1), the same in every replay."""
    digest = blake2b(f"shadow:{seed}:{step}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64
