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
from policies.choice_records import Decision, Drafted, Moment, Outcome, Policy
from policies.choice_rows import Offer
from policies.estimate import Key, Rule, Scored

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
    and back, of remote arms."""

    rows: tuple[int, ...]
    forward_s: tuple[float, ...]
    drafts: Mapping[Arm, tuple[float, float, float]]
    wire_s: float

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
    """

    def __init__(
        self, profiles: Mapping[Arm, Profile], clients: int, rounds: int, seed: Sequence[int]
    ) -> None:
        self.clients, self.rounds = clients, rounds
        dice = np.random.default_rng(seed)
        ends = dice.random((rounds, clients)) < 1.0 / LIFE
        request = np.cumsum(ends, axis=0)
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
    up: Sequence[Arm] | None = None,
    noise: float = 0.05,
    seed: int = 0,
) -> Tally:
    """Run the policy through a phase. up: the arms it is told of; None is all. noise: of measured
    times, in their logarithm; one in a hundred is twice as long."""
    dice = np.random.default_rng((seed, first_step))
    factors = np.exp(dice.normal(0.0, noise, phase.rounds))
    factors = factors * np.where(dice.random(phase.rounds) < 0.01, 2.0, 1.0)
    arms = sorted(phase.sizes) if up is None else sorted(up)
    deepest = max((arm.max_depth for arm in arms), default=0)
    tokens, times = np.zeros(phase.rounds), np.zeros(phase.rounds)
    depth, controlled = np.zeros(phase.rounds), np.zeros(phase.rounds)
    reasons: list[str] = []
    for t in range(phase.rounds):
        groups = (Group(COHORT, phase.clients, deepest),)
        moment = Moment(first_step + t, groups, arms, rule)
        decision = policy.decide(moment)
        plan = decision.plans[COHORT]
        reasons.append(plan.reason)
        depths, written, blocks = [0] * phase.clients, np.ones(phase.clients), {}
        exposed_s, drafted = 0.0, []
        if plan.arm is not None:
            arm, sizes = plan.arm, np.minimum(phase.sizes[plan.arm][t], plan.ask)
            offers = [Offer(COHORT, int(size)) for size in sizes]
            depths = [row.depth for row in policy.rows(moment, decision, offers)]
            chance = phase.alive[arm][t] * (np.arange(arm.max_depth) < np.array(depths)[:, None])
            tokens[t] = chance.sum()
            seen = depths if rule in ("rejection", "block") else sizes
            right = np.minimum(phase.right[arm][t], seen)
            blocks[COHORT, arm.mechanism] = [
                Scored(max(plan.ask if s == z else int(s), 1), int(s), int(r), d > 0)
                for s, r, d, z in zip(seen, right, depths, sizes, strict=True)
                if s or not z
            ]
            written += np.minimum(phase.right[arm][t], depths)
            exposed_s = machine.block_s(arm, phase.clients, plan.ask)
            trip_s = machine.wire_s if arm.remote else None
            draft_s = machine.draft_s(arm, phase.clients, plan.ask) * factors[t]
            if sizes.any():
                drafted.append(Drafted(arm, phase.clients, plan.ask, draft_s, trip_s))
        exposed_s += _shadow(phase, machine, decision, t, blocks, drafted)
        rows = phase.clients + sum(depths)
        forward_s = float(machine.step_s(rows))
        tokens[t] += phase.clients
        times[t] = forward_s + exposed_s
        depth[t] = sum(depths) / phase.clients
        controlled[t] = decision.kind == "control"
        policy.learn(
            Outcome(
                moment,
                decision,
                rows,
                forward_s * factors[t],
                times[t] * factors[t],
                {COHORT: float(written.sum())},
                blocks,
                drafted,
            )
        )
    return Tally(tokens, times, depth, controlled, tuple(reasons))


def _shadow(
    phase: Phase,
    machine: Machine,
    decision: Decision,
    t: int,
    blocks: dict[Key, list[Scored]],
    drafted: list[Drafted],
) -> float:
    """Score the shadows of a round; what they take of the step, where a remote drafter only costs
    the asking."""
    shadow = decision.shadow
    if shadow is None:
        return 0.0
    arm, count = shadow.arm, shadow.rows
    sizes = np.minimum(phase.sizes[arm][t][:count], shadow.depth)
    right = np.minimum(phase.right[arm][t][:count], sizes)
    blocks.setdefault((shadow.cohort, arm.mechanism), []).extend(
        Scored(shadow.depth, int(size), int(hit), False)
        for size, hit in zip(sizes, right, strict=True)
    )
    draft_s = machine.draft_s(arm, count, shadow.depth)
    if sizes.any():
        trip_s = machine.wire_s if arm.remote else None
        drafted.append(Drafted(arm, count, shadow.depth, draft_s, trip_s))
    return ASK_S + count * ASK_EACH_S if arm.remote else draft_s
