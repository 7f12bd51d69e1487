"""The policy's seat in the engine: what it is told of each step, and what its plans come to for
each request (DESIGN §9, docs/policy.md).

`policies.adaptive` knows cohorts, `actors.engine.speculation` knows requests. Here a cohort's plan
bounds what a request's own record then decides: which way to draft is asked, how often, and how
much of a block may be verified. Where drafting does not pay for a cohort as a whole but asking
costs next to nothing, its requests go on being asked, and those that copy a text just now are
verified.

A step is decided at the end of the one before it, because blocks are asked for then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace

from actors.contracts import Draft, Gathered
from actors.engine.asking import Asking
from actors.engine.cohorts import cohort_of
from actors.engine.decided import Decided
from actors.engine.plan import Depth
from actors.engine.policy_figures import Figures
from actors.engine.profile import by_rows
from actors.engine.scouting import Scouting
from actors.engine.sequence import Sequence
from actors.engine.sessions import NO_GAIN
from actors.engine.speculation import Speculation
from actors.engine.telling import STILL_TOGETHER, TOGETHER, Stretch, Telling
from actors.engine.ways import Ways, most, refused, ways_of, why
from actors.sampling.rules import DEFAULT, Rule, weighs_laws
from policies import cost, drag, estimate_cost, estimate_draft
from policies.adaptive import Adaptive
from policies.choice import Arm, Group
from policies.choice_reasons import Reason
from policies.choice_records import Drafted, Moment, Outcome, Plan, Shadow
from policies.control import Windows
from policies.estimate import Key, Scored
from policies.patience import REST

SMALL = 0.005
"""Of a step of standard decode: what asking requests that rest may take, on average."""
ASK_S = 0.0001
"""What asking remote drafters takes of the engine's thread, before it was ever measured."""
LENIENT_SHARE = 0.15
"""Of a step: what asking everybody may take where their cohort's blocks do not pay."""
LENIENT_AFAR = 0.04  # of drafters elsewhere, whose blocks come late as well
READ_SHARE = 0.1
"""Of the time in which standard decode would write the rest of a text: what reading it may take
before it is drafted for."""
UNREAD = 256  # scored blocks that are kept between two steps without prompts


class Steering:
    """One engine's, on its thread."""

    def __init__(self, policy: Adaptive, speculation: Speculation, rule: Rule = DEFAULT) -> None:
        self.policy = policy
        self.figures = Figures()
        self._speculation = speculation
        self._rule: Rule = rule
        self._step, self._ran_step = 0, 0  # that was decided last, and the one before it
        self._next: Decided | None = None  # for it; None where nobody writes
        self._ran: Decided | None = None  # for the step before it
        self._writers, self._context = 1, 0
        self._ways: dict[str, Ways] = {}  # by cohort
        self._asking = Asking()
        self._least: dict[Arm, int] = {}  # one that rests is asked in one of so many steps, or less
        self._often: set[int] = set()  # those in which somebody is
        self._ask_s = ASK_S
        self._drag = drag.Drag()
        self._cohorts: dict[str, str] = {}
        self._blocks: dict[Key, list[Scored]] = {}
        self._telling = Telling(lambda: self.policy.windows, self._learn)
        self._writing: list[Sequence] = []
        self._planned: Mapping[str, Plan] = {}
        self._until = 0
        self._groups: dict[tuple[str, int], int] = {}  # requests by (cohort, limit)
        self._made: tuple[Group, ...] = ()  # the same, as the policy is told
        self._counts: dict[str, int] = {}  # and by cohort
        self._resting: set[str] = set()  # cohorts some of whose drafters are left alone
        self._prices: dict[int, float] = {}
        self._priced: tuple[object, int] = (None, 0)  # what they are for
        self._scouting = Scouting()
        policy.reads_s = self._scouting.refused_s
        speculation.step_s = self.step_s
        speculation.price_s = self._asking.each_s
        speculation.scored = self._note

    @property
    def moment(self) -> Moment | None:
        """The step that was decided last, None where nobody writes."""
        return self._next.moment if self._next is not None else None

    def step_s(self, rows: int) -> float:
        """Seconds of a step of so many rows in this batch, as the policy knows them."""
        cost = self.policy.state.step_cost
        if self._priced[0] is not cost or self._priced[1] != self._writers:
            self._priced, self._prices = (cost, self._writers), {}
        if rows not in self._prices:
            self._prices[rows] = estimate_cost.step_s(cost, rows, self._writers)
        return self._prices[rows] + self._context * cost.token_s

    # -- before a step ----------------------------------------------------------------------

    def still(self, running: Iterable[Sequence]) -> bool:
        """Whether the next step is sure to be like this one, with nobody asked for anything: then
        it is decided. Most steps of a cohort for which drafting does not pay are."""
        step, now = self._step + 1, self._next
        if (
            step >= min(self.policy.due, self._until)
            or now is None
            or now.asks
            or any(step % every == 0 for every in self._often)
            or [seq for seq in running if seq.pending == 1] != self._writing
        ):
            return False
        self._over()
        if not now.still:
            self._next = Decided(now.moment, now.decision, still=True)
        self._step = step
        self.figures.again()
        return True

    def _over(self) -> None:
        """The step that was decided last has run."""
        self._ran, self._ran_step = self._next, self._step
        if self._ran is not None:
            self._ran.reads = self._scouting.reads
        self._scouting.begin()

    def decide(
        self,
        running: Iterable[Sequence],
        arms: Seq[Arm],
        caps: Mapping[str, Depth],
        depth: int,
    ) -> None:
        """For the next step. caps: the most that each request may be asked for, by request; depth:
        the configured D."""
        if depth or arms:  # without drafters D is 0 as well, and that is no configuration
            self.policy.depth = depth
        writing = [seq for seq in running if seq.pending == 1]
        self._over()
        before, self._next = self._next, None
        self._writing, self._often = writing, set()
        if not writing:
            self._ways = {}
            return
        for arm in arms:
            self.policy.meet(arm)
        self._step += 1
        self._writers = len(writing)
        self._context = sum(len(seq.tokens) for seq in writing)
        self._group(writing, caps)
        moment = Moment(self._step, self._made, tuple(arms), self._rule, self._context)
        decision = self.policy.decide(moment)
        self._next = Decided(moment, decision)
        if before is None or decision is not before.decision or not self._ways:
            self._least = {}
            cheap = self._cheap(moment)
            self._ways = {
                cohort: ways_of(plan, cheap, self.policy.depth, resting=cohort in self._resting)
                for cohort, plan in decision.plans.items()
            }
            plans = {cohort: ways.plan for cohort, ways in self._ways.items()}
            self.policy.anyway = {c: plan.arm for c, plan in plans.items() if plan.arm}
            self._planned = plans
        self.figures.decided(self._planned, self._counts)
        self._shadow(writing, caps, decision.shadow)
        # Until then none of them comes to its last token, which has a reason of its own.
        least = min(seq.remaining for seq in writing) - 1
        self._until = 0 if decision.shadow else self._step + least

    def _group(self, writing: list[Sequence], caps: Mapping[str, Depth]) -> None:
        """Who writes, by cohort and limit; most steps are like the last."""
        groups: dict[tuple[str, int], int] = {}
        new: dict[str, int] = {}
        resting: set[str] = set()
        for seq in writing:
            cohort = self._cohorts.get(seq.request_id)
            if cohort is None:
                cohort = self._cohorts[seq.request_id] = cohort_of(seq)
                new[cohort] = new.get(cohort, 0) + 1
            cap = caps.get(seq.request_id)
            if cap is not None and cap.tokens and not seq.drafting:
                resting.add(cohort)
            group = cohort, cap.tokens if cap is not None and seq.drafting else 0
            groups[group] = groups.get(group, 0) + 1
        self._resting = resting
        if groups == self._groups and not new:
            return
        self._groups, self._counts = groups, {}
        self._scouting.refused_s.clear()  # another may be shorter
        for (cohort, _), count in groups.items():
            self._counts[cohort] = self._counts.get(cohort, 0) + count
        self._made = tuple(Group(c, count, limit) for (c, limit), count in sorted(groups.items()))
        if new:
            self.policy.turned({c: count / self._counts[c] for c, count in new.items()})

    def _cheap(self, moment: Moment) -> Arm | None:
        """A drafter that may be asked where blocks do not pay on average."""
        if not moment.arms or weighs_laws(self._rule):
            return None
        depth, sessions = self.policy.depth, moment.writers
        costs = self.policy.state.draft
        known = [arm for arm in moment.arms if costs[arm].newest or not costs[arm].guess]
        prices_s = ((self._price_s(arm, sessions, depth), arm) for arm in known)
        price_s, arm = min(prices_s, default=(math.inf, None))
        share = LENIENT_AFAR if arm and arm.remote else LENIENT_SHARE
        return arm if price_s <= share * self.step_s(sessions) else None

    def _price_s(self, arm: Arm, sessions: int, depth: int) -> float:
        """What asking takes of a step."""
        if arm.remote:
            return self._ask_s + self._drag_s
        cost = self.policy.state.draft[arm]
        draft_s = estimate_draft.block_s(cost, sessions, min(depth, arm.max_depth), remote=False)
        return max(draft_s, self._asking.step_s(arm))

    def _seldom(self, arm: Arm, depth: int) -> int:
        """In one of how many steps those that rest may be asked, all at once."""
        if arm not in self._least:
            most_s = SMALL * self.step_s(self._writers)
            price_s, steps = self._price_s(arm, self._writers, depth), REST
            while price_s > steps * most_s:
                steps *= 2
            self._least[arm] = steps
        return self._least[arm]

    def _shadow(
        self, writing: list[Sequence], caps: Mapping[str, Depth], shadow: Shadow | None
    ) -> None:
        """Some requests of the cohort draft for evidence alone."""
        for seq in writing:
            seq.shadow = None
        if shadow is None:
            return
        able = [
            seq
            for seq in writing
            if seq.drafting
            and self._cohorts[seq.request_id] == shadow.cohort
            and (cap := caps.get(seq.request_id)) is not None  # None: it writes its first token
            and cap.tokens
            and self._planned[shadow.cohort].arm != shadow.arm
        ]
        chosen = self._scouting.choose(able, shadow, self.policy.affords)
        if self._scouting.explores:
            self.policy.pursue(shadow.arm)
        for seq in chosen:
            seq.shadow = shadow.arm, min(shadow.depth, caps[seq.request_id].tokens)

    def ask(self, seq: Sequence, cap: Depth) -> None:
        """What is asked for this request's next round, as its cohort's plan and its own record
        have it: `seq.arm`, `asked`, `depth` and the reason."""
        ways = self._of(seq.request_id)
        seq.asked, seq.arm = 0, None
        able = bool(cap.tokens) and seq.drafting
        if ways is None or not able or ways.plan.arm is None:
            reason = ways.plan.reason if ways is not None and seq.drafting else NO_GAIN
            seq.depth, seq.depth_reason, seq.owed = 0, cap.reason or reason, False
            return
        for plan in ways.each():
            if plan.arm is None or seq.asked or (seq.owed and seq.arm):
                break
            seq.arm, seq.asked = plan.arm, self._asked(seq, plan.arm, min(plan.ask, cap.tokens))
        keeps = bool(seq.asked) or seq.owed
        seq.depth = cap.tokens if keeps else 0
        seq.depth_reason = "" if keeps else NO_GAIN

    def _asked(self, seq: Sequence, arm: Arm, wanted: int) -> int:
        """How many of the wanted tokens this drafter is asked for."""
        most_s = READ_SHARE * seq.remaining * self.step_s(self._writers)
        if self._next is None or self._scouting.read_s(arm, seq) > most_s:
            return 0
        # Those that rest in the same step: one message, one interruption.
        least, speculation = self._seldom(arm, wanted), self._speculation
        asked = speculation.ask(seq.request_id, wanted, arm.mechanism, self._step, least)
        if not asked:
            self._often.add(speculation.period(seq.request_id, least))
            return 0
        sessions, depth = self._next.asks.get(arm, (0, 0))
        self._next.asks[arm] = sessions + 1, max(depth, asked)
        self._scouting.knows(arm, seq.request_id)
        return asked

    # -- in a step --------------------------------------------------------------------------

    def heard(self, gathered: Gathered, asking_s: float) -> None:
        """What came of the asks. asking_s: what telling and asking drafters took of the engine's
        thread, before the step."""
        if (now := self._next) is None:
            return
        shadow, price_s, asked = now.decision.shadow, now.decision.price_s, frozenset(now.asks)
        self.policy.charge(self._scouting.beyond_s(shadow, price_s, asking_s, asked, gathered))
        if now.elsewhere:
            self._ask_s += 0.1 * (asking_s - self._ask_s)

    def most(self, drafts: Mapping[str, Draft]) -> dict[str, int]:
        """How many tokens of each block its cohort's plan lets be verified."""
        return {request_id: self._most(request_id, draft) for request_id, draft in drafts.items()}

    def _most(self, request_id: str, draft: Draft) -> int:
        weighed, proven = weighs_laws(self._rule), self._speculation.proven(draft.mechanism)
        return most(self._of(request_id), draft, weighed=weighed, proven=proven)

    def refused(self, request_id: str, draft: Draft) -> str:
        """Why a block of this request was not verified though it came."""
        return refused(self._of(request_id), draft)

    def why(self, seq: Sequence, came: Draft, kept: Draft) -> Reason:
        """Why so much of a block is verified: of `came`, the first tokens, `kept`."""
        bound = self._most(seq.request_id, came)
        return why(self._of(seq.request_id), seq, came, kept, bound, self.policy.depth)

    def _of(self, request_id: str) -> Ways | None:
        return self._ways.get(self._cohorts.get(request_id, ""))

    @property
    def _drag_s(self) -> float:
        return drag.share(self._drag) * self.step_s(self._writers)

    @property
    def spent_s(self) -> float:
        """What the step's blocks were expected to take."""
        draft = self.policy.state.draft
        return max(
            (
                estimate_draft.block_s(draft[arm], *use, remote=arm.remote)
                for arm, use in (self._next.asks if self._next else {}).items()
            ),
            default=0.0,
        )

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self._cohorts.pop(request_id, None)
        self._scouting.forget(request_id)

    # -- after a step -----------------------------------------------------------------------

    def learnt(self, segments: int, written: int, step_s: float, forward_s: float) -> bool:
        """After a step without prompts: whether it was still, and what was written is what such a
        step writes, so that there is nothing else to learn from it."""
        ran = self._ran
        if ran is None or not ran.still:
            return False
        self._asking.still(step_s - forward_s)
        return segments == written == self._writers and self._telling.again(self._ran_step, step_s)

    def learn(
        self,
        writers: Mapping[str, int],
        tokens: Mapping[str, int],
        gathered: Gathered,
        *,
        rows: int,
        forward_s: float,
        step_s: float,
    ) -> None:
        """After a step without prompts, when the next is decided. writers, tokens: by cohort,
        requests that wrote and what they wrote. rows: of the forward."""
        if (ran := self._ran) is None:
            return
        moment, decision = ran.moment, ran.decision
        if moment.step != self._ran_step:
            moment = replace(moment, step=self._ran_step, context=self._context)
        if writers != moment.counts:
            if set(writers) - set(decision.plans):
                return
            groups = tuple(Group(c, n, self.policy.depth) for c, n in sorted(writers.items()))
            moment = replace(moment, groups=groups)
        ratio = forward_s / self.step_s(rows)
        self._drag = drag.observed(self._drag, ratio, beside=ran.elsewhere)
        drafted: tuple[Drafted, ...] = ()
        if (ran.asks or gathered.shadows) and not ran.reads:
            if len(ran.asks) == 1 and decision.shadow is None:
                arm, (sessions, _) = next(iter(ran.asks.items()))
                if not arm.remote:  # waits have a price of their own
                    self._asking.asked(arm, sessions, step_s - forward_s)
            drafted = tuple(self._drafted(ran, gathered))
        soon = decision.shadow is not None or (self._blocks and self.policy.fresh(moment))
        self._telling.add(
            Stretch(moment, decision, rows, forward_s, step_s, tokens, drafted),
            most=1 if soon else STILL_TOGETHER if ran.still else TOGETHER,
        )

    def _learn(self, outcome: Outcome) -> None:
        blocks, self._blocks = self._blocks, {}
        before = self.policy.state
        self.policy.learn(replace(outcome, blocks=blocks))
        now = self.policy.state
        if now.step_cost.alarms > before.step_cost.alarms:
            self.figures.repriced(outcome.moment.counts)
        if now.changed != before.changed:
            self.figures.changed(before.changed, now.changed)
            self._speculation.doubt()

    def _drafted(self, ran: Decided, gathered: Gathered) -> Iterable[Drafted]:
        """What the step's blocks took. Of a drafter elsewhere: its own time, and what the step
        waited beyond it; of one in this process, telling it what was committed as well."""
        for arm, (sessions, depth) in ran.asks.items():
            took = [
                draft.draft_us / 1e6
                for draft in gathered.drafts.values()
                if (draft.mechanism, draft.remote) == (arm.mechanism, arm.remote)
            ]
            if not took:
                continue
            draft_s = max(took)
            if arm.remote:
                # A wait in which something was drafted here as well says nothing of the wire.
                trip_s = max(0.0, gathered.waited_s - draft_s) + self._drag_s
                yield Drafted(arm, sessions, depth, draft_s, None if ran.here else trip_s)
            else:
                draft_s += self._scouting.usual_s(frozenset(ran.asks)) / len(ran.asks)
                beyond_s = max(0.0, self._asking.step_s(arm) - draft_s)
                yield Drafted(arm, sessions, depth, draft_s, beyond_s or None)
        shadows: dict[Arm, list[Draft]] = {}
        for arm, draft in gathered.shadows.values():
            shadows.setdefault(arm, []).append(draft)
        for arm, drafts in shadows.items():
            depth = max(1, *(len(draft.tokens) for draft in drafts))
            yield Drafted(arm, len(drafts), depth, max(draft.draft_us for draft in drafts) / 1e6)

    def _note(self, request_id: str, mechanism: str, block: Scored) -> None:
        cohort = self._cohorts.get(request_id)
        if cohort is not None and mechanism:
            kept = self._blocks.setdefault((cohort, mechanism), [])
            if len(kept) < UNREAD:
                kept.append(block)


def steered(
    samples: Seq[estimate_cost.Sample], rule: Rule, depth: int, seed: str
) -> tuple[Speculation, Steering]:
    """samples: of the target's profile. seed: the verifier's, for the windows of its control."""
    policy = Adaptive(estimate_cost.profiled(samples), {}, depth=depth, windows=Windows(seed))
    speculation = Speculation(cost.profiled(by_rows(samples)), rule)
    return speculation, Steering(policy, speculation, rule)
