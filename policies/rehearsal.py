"""A computed world to try policies in: phases of traffic, recorded costs, no clock and no chance
but the seed's.

Who writes and how well each mechanism knows their texts is drawn before anyone decides, and what a
block would bring is drawn with it, so every policy and every fixed choice meets the same world.
Requests differ: each has its own rates, for as many rounds as it lives. What a policy earns is
counted in expectation (given which blocks came, and the true rates) and over undisturbed times;
what it sees are draws and noisy measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.choice import Arm, Group
from policies.choice_records import Decision, Drafted, Moment, Outcome, Policy, Turning
from policies.choice_rows import Offer
from policies.estimate import Key, Rule, Scored, shadows_count

COHORT = "default"
LIFE = 60.0
"""Rounds that a request lives, on average."""
SPREAD = 0.6
"""Of requests' own rates, in logits, around the phase's."""
ASK_S = 0.00005
"""What asking for shadows takes on the target's side, and in addition of each:"""
ASK_EACH_S = 0.00001


@dataclass(frozen=True, slots=True)
class Profile:
    """What a mechanism knows of a kind of text. fill: P(a block comes). accept: of each position,
    given that the one before was accepted."""

    fill: float
    accept: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """Recorded costs. rows, forward_s: of the target. drafts: by arm, (seconds for one session,
    in addition for each further one, in addition for each token after the first). wire_s: there
    and back, of remote arms. hidden_s: what a step with drafts takes in addition, which shows in
    nothing but its length."""

    rows: tuple[int, ...]
    forward_s: tuple[float, ...]
    drafts: Mapping[Arm, tuple[float, float, float]]
    wire_s: float
    hidden_s: float = 0.0

    def step_s(self, rows: np.ndarray | float) -> np.ndarray:
        """Beyond the last record as on its last stretch."""
        beyond = 8 * self.rows[-1]
        slope = (self.forward_s[-1] - self.forward_s[-2]) / (self.rows[-1] - self.rows[-2])
        last = self.forward_s[-1] + slope * (beyond - self.rows[-1])
        return np.asarray(np.interp(rows, (*self.rows, beyond), (*self.forward_s, last)))

    def draft_s(self, arm: Arm, sessions: int, depth: int) -> float:
        """Of drafting alone."""
        first, session, token = self.drafts[arm]
        return first + session * (sessions - 1) + token * (depth - 1)

    def block_s(self, arm: Arm, sessions: int, depth: int) -> float:
        """Until blocks of so many sessions are there; 0 for none."""
        if not depth:
            return 0.0
        return self.draft_s(arm, sessions, depth) + (self.wire_s if arm.remote else 0.0)

    def slower(self, arm: Arm, more_s: float) -> Machine:
        """The same with a drafter that takes so much longer for every round of blocks."""
        first, session, token = self.drafts[arm]
        return replace(self, drafts={**self.drafts, arm: (first + more_s, session, token)})


class Phase:
    """`rounds` steps of `clients` requests of one kind, drawn from `seed`.

    sizes, right: by arm, [rounds, clients], tokens that a block asked for in that round would have
    and how many first ones would be accepted. alive: [rounds, clients, depth], P(accepted so far).
    new: [rounds], the share of the requests that begin in it.
    """

    def __init__(
        self, profiles: Mapping[Arm, Profile], clients: int, rounds: int, seed: Sequence[int]
    ) -> None:
        self.clients, self.rounds = clients, rounds
        dice = np.random.default_rng(seed)
        ends = dice.random((rounds, clients)) < 1.0 / LIFE
        request = np.cumsum(ends, axis=0)
        self.new = ends.mean(axis=1)
        self.new[0] = 1.0
        own = dice.normal(0.0, SPREAD, (int(request.max()) + 1, clients))
        shift = own[request, np.arange(clients)]
        self.sizes: dict[Arm, np.ndarray] = {}
        self.right: dict[Arm, np.ndarray] = {}
        self.alive: dict[Arm, np.ndarray] = {}
        for arm, profile in sorted(profiles.items()):
            rates = np.array((profile.accept * arm.max_depth)[: arm.max_depth])
            rates[: len(profile.accept)] = profile.accept[: arm.max_depth]
            rates[len(profile.accept) :] = profile.accept[-1]
            logits = np.log(rates / (1.0 - rates)) + shift[..., None]
            given = 1.0 / (1.0 + np.exp(-logits))
            came = dice.random((rounds, clients)) < profile.fill
            hit = dice.random(given.shape) < given
            self.sizes[arm] = np.where(came, arm.max_depth, 0)
            self.right[arm] = np.cumprod(hit, axis=2).sum(axis=2) * came
            self.alive[arm] = np.cumprod(given, axis=2)

    def standard(self, machine: Machine) -> float:
        """Tokens per second of standard decode."""
        return self.clients / float(machine.step_s(self.clients))

    def static(
        self, machine: Machine, arm: Arm, depth: int, start: int = 0, stop: int | None = None
    ) -> tuple[float, float]:
        """Tokens and seconds of a fixed mechanism and depth, over rounds start … stop-1."""
        span = slice(start, stop)
        depths = np.minimum(self.sizes[arm][span], depth)
        chance = self.alive[arm][span, :, :depth] * (np.arange(depth) < depths[..., None])
        tokens = depths.shape[0] * self.clients + float(chance.sum())
        times = machine.step_s(self.clients + depths.sum(axis=1))
        exposed = machine.block_s(arm, self.clients, depth)
        return tokens, float(times.sum()) + len(times) * exposed


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of a phase, by round, [rounds] each. tokens: in expectation. depth: verified of a
    request, on average. control: 1 where the step was the control's. reasons: of the plan."""

    tokens: np.ndarray
    seconds: np.ndarray
    depth: np.ndarray
    control: np.ndarray
    reasons: tuple[str, ...]

    def rate(self, start: int = 0, stop: int | None = None) -> float:
        """Tokens per second over rounds start … stop-1."""
        return float(self.tokens[start:stop].sum() / self.seconds[start:stop].sum())


def rehearse(
    policy: Policy,
    phase: Phase,
    machine: Machine,
    *,
    first_step: int = 0,
    rule: Rule = "coupled",
    noise: float = 0.05,
    seed: int = 0,
) -> Tally:
    """Run the policy through a phase. noise: of measured times, in their logarithm; one in a
    hundred is twice as long."""
    dice = np.random.default_rng((seed, first_step))
    factors = np.exp(dice.normal(0.0, noise, phase.rounds))
    factors = factors * np.where(dice.random(phase.rounds) < 0.01, 2.0, 1.0)
    arms = tuple(sorted(phase.sizes))
    groups = (Group(COHORT, phase.clients, max(arm.max_depth for arm in arms)),)
    tokens, seconds = np.full(phase.rounds, float(phase.clients)), np.zeros(phase.rounds)
    depth, controlled = np.zeros(phase.rounds), np.zeros(phase.rounds)
    reasons: list[str] = []
    for t in range(phase.rounds):
        if phase.new[t] and isinstance(policy, Turning):
            policy.turned({COHORT: float(phase.new[t])})
        moment = Moment(first_step + t, groups, arms, rule)
        decision = policy.decide(moment)
        round_ = _Round(phase, machine, moment, decision, t, float(factors[t]))
        round_.draft(policy)
        round_.shadow()
        rows = phase.clients + sum(round_.depths)
        forward_s = float(machine.step_s(rows))
        tokens[t] += round_.expected
        seconds[t] = forward_s + round_.exposed_s
        depth[t], controlled[t] = sum(round_.depths) / phase.clients, decision.kind == "control"
        reasons.append(decision.plans[COHORT].reason)
        policy.learn(
            Outcome(
                moment,
                decision,
                rows,
                forward_s * factors[t],
                seconds[t] * factors[t],
                {COHORT: phase.clients + float(round_.accepted)},
                round_.blocks,
                round_.drafted,
            )
        )
    return Tally(tokens, seconds, depth, controlled, tuple(reasons))


class _Round:
    """What a decision comes to in round `t` of a phase. factor: of measured times."""

    def __init__(
        self,
        phase: Phase,
        machine: Machine,
        moment: Moment,
        decision: Decision,
        t: int,
        factor: float,
    ) -> None:
        self._phase, self._machine, self._moment = phase, machine, moment
        self._decision, self._t, self._factor = decision, t, factor
        self.depths = [0] * phase.clients
        self.expected, self.accepted, self.exposed_s = 0.0, 0, 0.0
        self.blocks: dict[Key, list[Scored]] = {}
        self.drafted: list[Drafted] = []

    def draft(self, policy: Policy) -> None:
        """The blocks that are asked for, verified as far as the policy says."""
        phase, t, plan = self._phase, self._t, self._decision.plans[COHORT]
        if plan.arm is None:
            return
        sizes = np.minimum(phase.sizes[plan.arm][t], plan.ask)
        offers = [Offer(COHORT, int(size)) for size in sizes]
        rows = policy.rows(self._moment, self._decision, offers)
        self.depths = [row.depth for row in rows]
        right = phase.right[plan.arm][t]
        self.accepted = int(np.minimum(right, self.depths).sum())
        alive = phase.alive[plan.arm][t]
        verified = np.arange(plan.arm.max_depth) < np.array(self.depths)[:, None]
        self.expected = float((alive * verified).sum())
        block_s = self._machine.block_s(plan.arm, phase.clients, plan.ask)
        self.exposed_s = block_s + self._machine.hidden_s
        self.blocks[COHORT, plan.arm.mechanism] = [
            self._scored(plan.ask, int(size), int(hit), depth)
            for size, hit, depth in zip(sizes, right, self.depths, strict=True)
            if depth or not size or shadows_count(self._moment.rule)
        ]
        self._timed(plan.arm, phase.clients, plan.ask, bool(sizes.any()))

    def shadow(self) -> None:
        """Blocks that nobody verifies. A remote drafter costs the asking, another its time."""
        shadow, phase, t = self._decision.shadow, self._phase, self._t
        if shadow is None:
            return
        arm, count = shadow.arm, shadow.rows
        sizes = np.minimum(phase.sizes[arm][t][:count], shadow.depth)
        self.blocks.setdefault((shadow.cohort, arm.mechanism), []).extend(
            Scored(shadow.depth, int(size), min(int(hit), int(size)), False)
            for size, hit in zip(sizes, phase.right[arm][t][:count], strict=True)
        )
        draft_s = self._machine.draft_s(arm, count, shadow.depth)
        self.exposed_s += ASK_S + count * ASK_EACH_S if arm.remote else draft_s
        self._timed(arm, count, shadow.depth, bool(sizes.any()))

    def _scored(self, ask: int, size: int, hit: int, depth: int) -> Scored:
        """A block that was verified in part: what the rest would have brought is known only where
        the text does not depend on it."""
        if not size or shadows_count(self._moment.rule):
            return Scored(ask, size, min(hit, size), depth > 0)
        return Scored(depth, depth, min(hit, depth))

    def _timed(self, arm: Arm, sessions: int, depth: int, came: bool) -> None:
        if came:
            draft_s = self._machine.draft_s(arm, sessions, depth) * self._factor
            trip_s = self._machine.wire_s if arm.remote else None
            self.drafted.append(Drafted(arm, sessions, depth, draft_s, trip_s))
