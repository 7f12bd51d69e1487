"""The policy as one object: pure decisions, and the state that is handed from one to the next.

Each verifier has one and decides every step by it; the policy actor's snapshot gives it what other
verifiers have learnt. It holds nothing of any request, so nothing of one reaches the next but
through its cohort's estimates, which are all in `state` for everybody to see (pitfalls S48).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

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
from policies.pooled import begun
from policies.tally import Tally, Totals

LOOK_EVERY = 4
"""Steps between two looks at a batch that stays as it is: a look takes some 0.4 ms;"""
CALM_EVERY = 32
"""and between two at most, where those before have changed nothing or there is nothing new."""
URGENT_EVERY = 4
"""Steps between two looks, at least, at whether a shadow that is wanted can be paid by now."""
READ_EVERY = 4
"""Steps between two readings of blocks: what comes at once counts as one surprise at most."""
CALM_LOOKS = 4
"""Looks in a row that change nothing, after which the next is twice as far away."""
MOSTLY = 0.5
"""So large a share of new requests is a change of text."""
IMPRESSION = 4
"""Blocks in a row that are asked for of a text that was read for evidence."""
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
        self.depth = depth
        self._plans: dict[str, Plan] = {}
        self._news = False  # something has been learnt since they were made
        self._void = False  # what they were chosen on does not hold: costs have changed
        self._batch: object = None  # what they are for, and since when
        self._at = self._newest = 0
        self._same = Decision({})  # of a step like the last one
        self.due = 0  # the next step that has something of its own, if the batch stays
        self._calm = 0  # looks in a row at it that changed nothing
        self._allowed_s = 0.0  # what exploring may take before it has earned anything
        self._free = False  # there are mechanisms of which only shadows tell
        self._urgent = False  # a shadow waits until it can be paid,
        self._paid_at = 0  # about at this step
        self._pursued: tuple[Arm, int] | None = None  # of whom so many shadows more are wanted
        self._unread: dict[Key, list[Scored]] = {}
        self._read = -LOOK_EVERY
        self._wary: frozenset[str] = frozenset()  # cohorts whose blocks are a surprise of late
        self.anyway: Mapping[str, Arm] = {}  # by cohort, whom the engine asks whatever is planned
        self.reads_s: Mapping[Arm, float] = {}  # before it knows any text at all, where it does not
        self.tally = Tally()  # what others are told
        self._pooled: Totals = {}  # what they have told, and who has begun from it
        self._begun: frozenset[str] = frozenset()

    def begin(self, pooled: Totals) -> None:
        """What all verifiers have learnt, with every newer snapshot: a cohort of which nothing is
        known here begins from it when it is met."""
        self._pooled, self._begun, self.due = pooled, frozenset(), 0

    def meet(self, arm: Arm) -> None:
        """A way to draft is up. Its price is what it has timed at its start; one that has not is
        taken to draft like others until it does, or its own blocks have said what they take."""
        known = self.state.draft.get(arm)
        if known is None or (known.guess and arm.timings):
            timings = arm.timings
            cost = (
                estimate_draft.timed(timings, known)
                if timings
                else estimate_draft.guessed(arm.max_depth)
            )
            self.state = replace(self.state, draft={**self.state.draft, arm: cost})

    def decide(self, moment: Moment) -> Decision:
        """What is asked of whom."""
        self._newest = moment.step
        if self._as_before(moment):
            return self._same
        self._begin(moment)
        view = View(self.state, moment, self.depth)
        ledgers = self.state.ledgers
        fallen = {c for c in view.cohorts if (of := ledgers.get(c)) is not None and of.fallen}
        kind = self.windows.kind(moment.step, returning=bool(fallen))
        plans = {
            cohort: self._in_step(plan, kind, cohort in fallen)
            for cohort, plan in self._looked(view).items()
        }
        if kind == "policy" and not estimate.shadows_count(moment.rule):
            plans = self._probe(view, plans)
        # What is drafted here beside a step of the control would make that step longer.
        before_s = self.state.purse.spent_s
        shadow = None if kind == "control" else self._shadow(view, plans)
        self.due = self._next(moment) if kind == "policy" and not fallen else 0
        if shadow is not None and self.fresh(moment):
            self.due = 0  # and another
        return Decision(plans, kind, shadow, self.state.purse.spent_s - before_s)

    def affords(self, seconds: float) -> bool:
        """Whether exploring may take so much more by now."""
        return explore.affords(self.state.purse, seconds, self._allowed_s)

    def charge(self, seconds: float) -> None:
        """Exploring took so much longer than was expected; where it took less, below zero."""
        if seconds:
            self.state = replace(self.state, purse=explore.charged(self.state.purse, seconds))

    def turned(self, shares: Mapping[str, float]) -> None:
        """Of a cohort's requests so large a share is new."""
        estimates, changed = self.state.estimates, dict(self.state.changed)
        for cohort, share in shares.items():
            estimates = estimate.turned(estimates, cohort, share)
            if share >= MOSTLY and any(of == cohort for of, _ in estimates):
                changed[cohort] = self._newest + 1
        self.state, self.due = replace(self.state, estimates=estimates, changed=changed), 0
        self._news = True

    def pursue(self, arm: Arm) -> None:
        """A shadow's drafter has read a text that is new to it, which was most of the price: a few
        more blocks make an impression of it."""
        self._pursued, self.due = (arm, IMPRESSION - 1), 0

    def fresh(self, moment: Moment) -> bool:
        """Whether a text in the batch has changed a moment ago."""
        return any(self._fresh(group.cohort, moment.step) for group in moment.groups)

    def _as_before(self, moment: Moment) -> bool:
        """Whether this step is sure to be like the last: most are, and looking takes time."""
        return moment.step < self.due and self._batch == _batch(moment)

    def _next(self, moment: Moment) -> int:
        """The next step that is looked at, or has a window or the turn of a shadow."""
        if not estimate.shadows_count(moment.rule):
            return 0  # each step may be a probe's
        last, seed = self._at + self._every, self.windows.seed
        if self._urgent:
            last = min(last, max(moment.step + URGENT_EVERY, self._paid_at))
        free = self._paid_at if self._free else last
        return next(
            (
                step
                for step in range(moment.step + 1, last)
                if (step >= free and explore.turn(seed, step))
                or self.windows.kind(step) != "policy"
            ),
            last,
        )

    def rows(self, moment: Moment, decision: Decision, offers: Sequence[Offer]) -> list[Row]:
        """How much of each block is verified."""
        view, plans = View(self.state, moment, self.depth), decision.plans
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
        if cost.alarms > state.step_cost.alarms:
            self.due, self._news, self._void = 0, True, True
        self.state = replace(
            state,
            step_cost=cost,
            draft=draft,
            purse=explore.passed(state.purse, outcome.step_s, outcome.steps),
            ledgers=self._account(outcome),
        )
        if any(ledger.fallen for ledger in self.state.ledgers.values()):
            self.due = 0
        for key, blocks in outcome.blocks.items():
            self._unread.setdefault(key, []).extend(estimate.fair(blocks, moment.rule))
        wary = any(group.cohort in self._wary for group in moment.groups)
        soon = wary or self.fresh(moment) or outcome.decision.shadow is not None
        if soon or moment.step - self._read >= READ_EVERY:
            self._read_blocks(moment.step)

    def _read_blocks(self, step: int) -> None:
        self._read = step
        if not self._unread:
            return
        self._news = True
        state, changed, purse = self.state, dict(self.state.changed), self.state.purse
        estimates: estimate.Estimates = state.estimates
        for key, blocks in self._unread.items():
            estimates, alarm = estimate.learnt(estimates, key, blocks, step)
            if alarm:
                self.tally.forget(key[0])
                changed[key[0]] = step
                self.due = 0
                purse = explore.renewed(purse)
            self.tally.note(key, blocks, step)
        self.state = replace(state, estimates=estimates, changed=changed, purse=purse)
        self._unread = {}
        wary = frozenset(c for (c, _), of in estimates.items() if suspicious(of.watch))
        if wary - self._wary:
            self._batch, self.due = None, 0  # looked at next: another mechanism may know more
        self._wary = wary
        # What has come with a change is looked at as it comes.
        if any(self._fresh(c, step) for c, _ in estimates):
            self.due = 0
        self.due = min(self.due, self._at + self._every)

    # ---------------------------------------------------------------- parts

    def _begin(self, moment: Moment) -> None:
        cohorts = frozenset(group.cohort for group in moment.groups)
        if cohorts <= self._begun:
            return
        self._begun |= cohorts
        known = begun(self.state.estimates, self._pooled, cohorts, moment.step)
        if known != self.state.estimates:
            self.state, self._batch, self.due = replace(self.state, estimates=known), None, 0

    def _fresh(self, cohort: str, step: int) -> bool:
        return step - self.state.changed.get(cohort, -FRESH_STEPS) < FRESH_STEPS

    def _looked(self, view: View) -> dict[str, Plan]:
        """The plans that hold for such a batch; looked at anew where there is reason to."""
        moment = view.moment
        batch = _batch(moment)
        fresh = self.fresh(moment) or self._void
        every = 0 if fresh and self._news else self._every
        if batch == self._batch and moment.step - self._at < every:
            return self._plans
        self._news = self._void = False
        before = self.state.held
        now, reasons = held(before, view, moment.step, fresh=fresh)
        self.state = replace(self.state, held=now)
        self._plans = {c: self._plan(view, c, now.picks[c], reasons[c]) for c in view.cohorts}
        calm = batch == self._batch and not fresh and not now.better
        self._calm = self._calm + 1 if calm and now.picks == before.picks else 0
        self._batch, self._at, self._same = batch, moment.step, Decision(self._plans)
        return self._plans

    @property
    def _every(self) -> int:
        """Steps from one look to the next, while nothing changes."""
        if self._calm >= CALM_LOOKS and not (self._news or self.state.held.better):
            return CALM_EVERY
        return min(LOOK_EVERY << self._calm // CALM_LOOKS, CALM_EVERY)

    def _plan(self, view: View, cohort: str, pick: Pick, reason: Reason) -> Plan:
        depth = min(pick.depth, view.limits[cohort])
        if pick.arm is not None and depth:
            ask = view.ask(pick.arm, view.counts[cohort], depth)
            survive = view.outlook(cohort, pick.arm).survive[:depth]
            return Plan(pick.arm, depth, ask, reason, survive)
        if pick.arm is not None:
            return Plan(None, 0, 0, "wish")
        if reason == "no-gain":
            if not self.depth:
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
        """A mechanism that a cohort is not using: one whose last blocks were a surprise, else one
        of a cohort in which another's were, else the one of which is known least of late."""
        step = view.moment.step
        self._allowed_s = explore.allowed_s(view.standard_s, [arm.read_s for arm in view.arms])
        free: list[tuple[str, Arm]] = []
        waits: list[int] = []  # for the account to bear those that it does not
        for cohort in view.cohorts:
            for arm in view.arms:
                if arm not in (plans[cohort].arm, self.anyway.get(cohort)):
                    wait = self._wait(view, cohort, arm)
                    if wait:
                        waits.append(wait)
                    else:
                        free.append((cohort, arm))
        self._free = bool(free)
        self._urgent, self._paid_at = bool(waits), step + min(waits, default=0)
        if not free or not estimate.shadows_count(view.moment.rule):
            return None
        never = Estimate(step=-1)
        known = self.state.estimates
        each = [known.get((c, arm.mechanism), never) for c, arm in free]
        surprises = [suspicious(of.watch) for of in each]
        ages = [step - of.step for of in each]
        doubts = [c in self._wary for c, _ in free]
        pursued = [self._pursued is not None and arm == self._pursued[0] for _, arm in free]
        chosen = max(range(len(free)), key=lambda i: (pursued[i], surprises[i], doubts[i], ages[i]))
        cohort, arm = free[chosen]
        depth, sessions, price_s = self._asking(view, cohort, arm)
        lacks = view.evidence(cohort, arm) < ENOUGH_BLOCKS
        # Half of what is saved may go into doubts about what others do.
        doubt = doubts[chosen] and self.state.purse.shadows > explore.BURST / 2
        urgent = pursued[chosen] or lacks or surprises[chosen] or doubt or self._fresh(cohort, step)
        if not urgent and ages[chosen] < explore.SHADOW_EVERY:
            return None  # the engine asks it anyway, because it costs next to nothing
        due = explore.turn(self.windows.seed, step)
        purse = explore.shadowed(
            self.state.purse,
            urgent=urgent,
            due=due,
            price_s=price_s,
            allowed_s=self._allowed_s,
            vain=lambda: (
                not surprises[chosen]
                and not view.promises(cohort, arm, Pick(plans[cohort].arm, plans[cohort].depth))
            ),
        )
        left = self._pursued[1] - 1 if self._pursued else 0
        self._pursued = (arm, left) if pursued[chosen] and purse is not None and left else None
        if purse is None:
            if (urgent or due) and self.state.purse.shadows >= 1.0:  # then it would be in vain
                later = step + explore.steps_until(
                    self.state.purse, price_s, 0.0, view.standard_s, explore.VAIN_SHARE
                )
                self._paid_at = min(later, self._paid_at) if waits else later
            return None
        if urgent:
            self._urgent, self._paid_at = True, step
        self.state = replace(self.state, purse=purse)
        return Shadow(cohort, arm, depth, sessions, again=pursued[chosen])

    @staticmethod
    def _asking(view: View, cohort: str, arm: Arm) -> tuple[int, int, float]:
        """For a shadow: how many tokens, of how many requests, and its price."""
        depth, sessions = view.deepest(arm), min(view.counts[cohort], explore.SHADOW_ROWS)
        return depth, sessions, 0.0 if arm.remote else view.costs.block_s(arm, sessions, depth)

    def _wait(self, view: View, cohort: str, arm: Arm) -> int:
        """Steps until the account bears a shadow, and a first text where it knows none of these."""
        price_s = self._asking(view, cohort, arm)[2] + self.reads_s.get(arm, 0.0)
        return explore.steps_until(self.state.purse, price_s, self._allowed_s, view.standard_s)

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
            allowed_s=view.standard_s,
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
        writers, cost = moment.writers, self.state.step_cost
        rows = float(writers + moment.other_rows)
        standard_s = estimate_cost.step_s(cost, rows, writers, moment.context)
        period, steps = self.windows.period_of(moment.step), outcome.step_s / standard_s
        for cohort, count in moment.counts.items():
            ledger = ledgers.get(cohort, control.Ledger(period))
            noted = control.noted(
                ledger,
                period,
                drafting=kind == "probe" if ledger.fallen else kind == "policy",
                tokens=outcome.tokens.get(cohort, 0.0),
                standard=count * steps,
            )
            another = noted.ratios is not ledger.ratios
            ledgers[cohort] = control.judged(noted) if another else noted
        return ledgers


def _batch(moment: Moment) -> object:
    """What plans are made for."""
    return moment.groups, moment.arms, moment.rule, moment.other_rows
