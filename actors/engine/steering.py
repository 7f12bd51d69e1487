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
from actors.engine.cohorts import cohort_of
from actors.engine.plan import Depth
from actors.engine.policy_figures import Figures
from actors.engine.profile import by_rows
from actors.engine.scouting import Scouting
from actors.engine.sequence import Sequence
from actors.engine.sessions import NO_GAIN
from actors.engine.speculation import REST, Speculation
from actors.engine.telling import STILL_TOGETHER, TOGETHER, Stretch, Telling
from actors.sampling.rules import DEFAULT, Rule, weighs_laws
from policies import cost, drag, estimate_cost, estimate_draft
from policies.adaptive import Adaptive
from policies.choice import Arm, Group
from policies.choice_reasons import Reason
from policies.choice_records import Decision, Drafted, Moment, Outcome, Plan
from policies.control import Windows
from policies.estimate import Key, Scored

SMALL = 0.01
"""Of a step of standard decode: what asking may take without being weighed."""
ASK_S = 0.0001
"""What asking remote drafters takes of the engine's thread, before it was ever measured."""
LENIENT_SHARE = 0.04
"""The same where requests whose blocks have not paid are asked in one round of `REST`."""
LENIENT = ("no-gain", "held", "no-evidence")
"""Reasons of plans that leave it to each request's own record."""
READ_SHARE = 0.1
"""Of the time in which standard decode would write the rest of a text: what reading it may take
before it is drafted for."""
UNREAD = 256
"""Scored blocks that are kept between two steps without prompts."""


class Steering:
    """One engine's, on its thread. moment: the step that was decided last, None where nobody
    writes."""

    def __init__(self, policy: Adaptive, speculation: Speculation, rule: Rule = DEFAULT) -> None:
        self.policy = policy
        self.figures = Figures()
        self._speculation = speculation
        self._rule: Rule = rule
        self._step = 0
        self._writers, self._context = 1, 0
        self.moment: Moment | None = None
        self._decision: Decision | None = None
        self._plans: Mapping[str, Plan] = {}
        self._asks: dict[Arm, tuple[int, int]] = {}
        self._often: dict[tuple[Arm, int], int] = {}  # in how many steps one at rest is asked
        self._ask_s = ASK_S
        self._drag = drag.Drag()
        self._cohorts: dict[str, str] = {}
        self._blocks: dict[Key, list[Scored]] = {}
        self._telling = Telling(lambda: self.policy.windows, self._learn)
        self._writing: list[Sequence] = []
        self._still = False
        self._until = 0
        self._groups: dict[tuple[str, int], int] = {}  # requests by (cohort, limit)
        self._made: tuple[Group, ...] = ()  # the same, as the policy is told
        self._counts: dict[str, int] = {}  # and by cohort
        self._resting: set[str] = set()  # cohorts some of whose drafters are left alone
        self._prices: dict[int, float] = {}
        self._priced: tuple[object, int] = (None, 0)  # what they are for
        self._scouting = Scouting()
        speculation.step_s = self.step_s
        speculation.scored = self._note

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
        step = self._step + 1
        if (
            step >= min(self.policy.due, self._until)
            or self.moment is None
            or self._asks
            or any(step % every == 0 for every in self._often.values())
            or [seq for seq in running if seq.pending == 1] != self._writing
        ):
            return False
        self._step, self._still = step, True
        self.figures.again()
        return True

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
        self._asks, self._writing, self._still = {}, writing, False
        if not writing:
            self.moment = self._decision = None
            self._plans = {}
            return
        for arm in arms:
            self.policy.meet(arm)
        self._step += 1
        self._scouting.begin()
        self._writers = len(writing)
        self._context = sum(len(seq.tokens) for seq in writing)
        self._group(writing, caps)
        self.moment = Moment(self._step, self._made, tuple(arms), self._rule, self._context)
        before, self._decision = self._decision, self.policy.decide(self.moment)
        if self._decision is not before or not self._plans:
            self._often = {}
            self._plans = {
                cohort: self._lenient(cohort, plan) for cohort, plan in self._decision.plans.items()
            }
        self.figures.decided(self._plans, self._counts)
        self._shadow(writing, caps)
        # Until then none of them comes to its last tokens, which have reasons of their own.
        least = min(seq.remaining for seq in writing) - depth - 1
        self._until = 0 if self._decision.shadow else self._step + least

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
        for (cohort, _), count in groups.items():
            self._counts[cohort] = self._counts.get(cohort, 0) + count
        self._made = tuple(Group(c, count, limit) for (c, limit), count in sorted(groups.items()))
        if new:
            self.policy.turned({c: count / self._counts[c] for c, count in new.items()})

    def _lenient(self, cohort: str, plan: Plan) -> Plan:
        """Where a cohort's blocks do not pay on average, or nothing is known of them, and asking is
        cheap: its requests are asked, and their own records decide."""
        moment = self.moment
        if plan.reason == "wish" and cohort in self._resting:
            return replace(plan, reason="no-gain")  # the policy sees that nobody may be asked
        if plan.arm is not None or plan.reason not in LENIENT:
            return plan
        if moment is None or not moment.arms or weighs_laws(self._rule):
            return plan
        depth, sessions = self.policy.depth, moment.writers
        price_s, arm = min((self._price_s(arm, sessions, depth), arm) for arm in moment.arms)
        if price_s > LENIENT_SHARE * self.step_s(moment.writers):
            return plan
        depth = min(depth, arm.max_depth)
        return Plan(arm, 0 if plan.reason == "no-evidence" else depth, depth, plan.reason)

    def _price_s(self, arm: Arm, sessions: int, depth: int) -> float:
        """What asking takes of a step when nothing is waited for."""
        if arm.remote:
            return self._ask_s + self._drag_s
        cost = self.policy.state.draft[arm]
        return estimate_draft.block_s(cost, sessions, min(depth, arm.max_depth), remote=False)

    def _shadow(self, writing: list[Sequence], caps: Mapping[str, Depth]) -> None:
        """Some requests of the cohort draft for evidence alone."""
        for seq in writing:
            seq.shadow = None
        if self._decision is None or (shadow := self._decision.shadow) is None:
            return
        able = [
            seq
            for seq in writing
            if seq.drafting
            and self._cohorts[seq.request_id] == shadow.cohort
            and (cap := caps.get(seq.request_id)) is not None  # None: it writes its first token
            and cap.tokens
            and self._plans[shadow.cohort].arm != shadow.arm
        ]
        chosen = self._scouting.choose(able, shadow, self.policy.affords)
        if self._scouting.explores:
            self.policy.pursue(shadow.arm)
        for seq in chosen:
            seq.shadow = shadow.arm, min(shadow.depth, caps[seq.request_id].tokens)

    def ask(self, seq: Sequence, cap: Depth) -> None:
        """What is asked for this request's next round, as its cohort's plan and its own record
        have it: `seq.arm`, `asked`, `depth` and the reason."""
        plan = self._plans.get(self._cohorts.get(seq.request_id, ""))
        seq.asked, seq.arm = 0, None
        if not cap.tokens or not seq.drafting or plan is None or plan.arm is None:
            reason = cap.reason or (plan.reason if plan is not None and seq.drafting else NO_GAIN)
            seq.depth, seq.depth_reason, seq.owed = 0, reason, False
            return
        seq.arm = plan.arm
        wanted = min(plan.ask, cap.tokens)
        every = self._often.get((plan.arm, wanted))
        if every is None:
            price_s = self._price_s(plan.arm, 1, wanted)
            every = max(REST, math.ceil(price_s / (SMALL * self.step_s(self._writers))))
            self._often[plan.arm, wanted] = every
        due = self._step % every == 0  # all in the same step: one message, one interruption
        if self._scouting.read_s(plan.arm, seq) > READ_SHARE * seq.remaining * self.step_s(
            self._writers
        ):
            seq.depth, seq.depth_reason, seq.owed = 0, NO_GAIN, False
            return
        seq.asked = self._speculation.ask(seq.request_id, wanted, plan.arm.mechanism, due)
        if seq.asked:
            sessions, depth = self._asks.get(plan.arm, (0, 0))
            self._asks[plan.arm] = sessions + 1, max(depth, seq.asked)
            self._scouting.knows(plan.arm, seq.request_id)
        keeps = bool(seq.asked) or seq.owed
        seq.depth = cap.tokens if keeps else 0
        seq.depth_reason = "" if keeps else NO_GAIN

    # -- in a step --------------------------------------------------------------------------

    def heard(self, gathered: Gathered, asking_s: float) -> None:
        """What came of the asks. asking_s: what telling and asking drafters took of the engine's
        thread, before the step."""
        if (decision := self._decision) is None:
            return
        asked = frozenset(self._asks)
        beyond_s = self._scouting.beyond_s(
            decision.shadow, decision.price_s, asking_s, asked, gathered
        )
        self.policy.charge(beyond_s)
        if self._elsewhere:
            self._ask_s += 0.1 * (asking_s - self._ask_s)

    def most(self, drafts: Mapping[str, Draft]) -> dict[str, int]:
        """How many tokens of each block its cohort's plan lets be verified."""
        return {r: self._most(self._plans.get(self._cohorts.get(r, "")), drafts[r]) for r in drafts}

    def _most(self, plan: Plan | None, draft: Draft) -> int:
        """A plan's D is for its cohort's blocks on average; one that says how sure it is may be
        verified as far as was asked for, where what is verified may hang on what was drafted."""
        if plan is None or not plan.depth:
            return 0
        knows = draft.confidence and not weighs_laws(self._rule)
        return max(plan.depth, plan.ask) if knows else plan.depth

    def reason(self, request_id: str) -> str:
        """Why a block of this request was not verified though it came."""
        plan = self._plans.get(self._cohorts.get(request_id, ""))
        return NO_GAIN if plan is None else "budget" if plan.reason == "gain" else plan.reason

    def why(self, seq: Sequence, came: Draft, kept: Draft) -> Reason:
        """Why so much of a block is verified: of `came`, the first tokens, `kept`."""
        plan = self._plans.get(self._cohorts.get(seq.request_id, ""))
        most, count = min(self._most(plan, came), len(came.tokens)), len(kept.tokens)
        if count < most:
            return "budget"
        if count == seq.depth < self.policy.depth:
            return "wish" if seq.request.max_draft_len == count else "end"
        # A plan that gains nothing leaves it to each request's own record, and this one's gains.
        if plan is None or plan.reason in ("no-gain", "no-evidence"):
            return "gain"
        return plan.reason

    @property
    def _elsewhere(self) -> bool:
        """Whether drafters in other processes were asked for this step."""
        shadow = self._decision.shadow if self._decision else None
        return any(arm.remote for arm in self._asks) or bool(shadow and shadow.arm.remote)

    @property
    def _here(self) -> bool:
        """Whether drafters in this process were."""
        shadow = self._decision.shadow if self._decision else None
        return not all(arm.remote for arm in self._asks) or bool(shadow and not shadow.arm.remote)

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
                for arm, use in self._asks.items()
            ),
            default=0.0,
        )

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self._cohorts.pop(request_id, None)
        self._scouting.forget(request_id)

    # -- after a step -----------------------------------------------------------------------

    def learnt(self, segments: int, written: int, step_s: float) -> bool:
        """After a step without prompts: whether it was still, and what was written is what such a
        step writes, so that there is nothing else to learn from it."""
        like = self._still and segments == written == self._writers
        return like and self._telling.again(self._step, step_s)

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
        """After a step without prompts. writers, tokens: by cohort, requests that wrote and what
        they wrote. rows: of the forward."""
        moment, decision = self.moment, self._decision
        if moment is None or decision is None:
            return
        if moment.step != self._step:
            moment = self.moment = replace(moment, step=self._step, context=self._context)
        if writers != self._counts:
            if set(writers) - set(decision.plans):
                return
            groups = tuple(Group(c, n, self.policy.depth) for c, n in sorted(writers.items()))
            moment = replace(moment, groups=groups)
        ratio = forward_s / self.step_s(rows)
        self._drag = drag.observed(self._drag, ratio, beside=self._elsewhere)
        told = (self._asks or gathered.shadows) and not self._scouting.reads
        drafted = tuple(self._drafted(gathered)) if told else ()
        soon = decision.shadow is not None or self.policy.fresh(moment)
        self._telling.add(
            Stretch(moment, decision, rows, forward_s, step_s, tokens, drafted),
            most=1 if soon else STILL_TOGETHER if self._still else TOGETHER,
        )

    def _learn(self, outcome: Outcome) -> None:
        blocks, self._blocks = self._blocks, {}
        changed = self.policy.state.changed
        self.policy.learn(replace(outcome, blocks=blocks))
        if self.policy.state.changed != changed:
            self.figures.changed(changed, self.policy.state.changed)
            self._speculation.doubt()

    def _drafted(self, gathered: Gathered) -> Iterable[Drafted]:
        """What the step's blocks took. Of a drafter elsewhere: its own time, and what the step
        waited beyond it; of one in this process, telling it what was committed as well."""
        for arm, (sessions, depth) in self._asks.items():
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
                yield Drafted(arm, sessions, depth, draft_s, None if self._here else trip_s)
            else:
                telling_s = self._scouting.usual_s(frozenset(self._asks)) / len(self._asks)
                yield Drafted(arm, sessions, depth, draft_s + telling_s)
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
