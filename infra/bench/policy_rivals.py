"""Other ways to choose a draft length, to stand beside the policy in one table.

Each is the plain form of what is published or released: a bandit over (mechanism, D), a rule on the
average accepted length, a fixed D for each batch size. They share the policy's interface, verify
whatever came, and get no shadows and no control.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from policies.choice import Arm
from policies.choice_records import Decision, Moment, Outcome, Plan
from policies.choice_rows import Offer, Row
from policies.rehearsal import COHORT

Choice = tuple[Arm | None, int]


class Rival(ABC):
    """Does one thing for the whole batch; D = 0 is (None, 0)."""

    @abstractmethod
    def choice(self, moment: Moment) -> Choice:
        """For the step that is about to be drafted for."""

    def earned(self, moment: Moment, choice: Choice, tokens: float, accepted: float) -> None:
        """Tokens per second of the step, and accepted tokens of a request. Some learn nothing."""
        return

    def decide(self, moment: Moment) -> Decision:
        arm, depth = self.choice(moment)
        return Decision({COHORT: Plan(arm, depth, depth, "gain" if arm else "no-gain")})

    def rows(self, moment: Moment, decision: Decision, offers: Sequence[Offer]) -> list[Row]:
        return [Row(min(o.size, decision.plans[o.cohort].depth), "gain") for o in offers]

    def learn(self, outcome: Outcome) -> None:
        plan = outcome.decision.plans[COHORT]
        tokens = outcome.tokens[COHORT]
        accepted = tokens / outcome.moment.writers - 1.0
        self.earned(outcome.moment, (plan.arm, plan.depth), tokens / outcome.step_s, accepted)


class Fixed(Rival):
    """One mechanism and D, or D by batch size: the D of the largest size that is not larger."""

    def __init__(self, arm: Arm, depths: Mapping[int, int]) -> None:
        self._arm, self._depths = arm, depths

    def choice(self, moment: Moment) -> Choice:
        size = max((s for s in self._depths if s <= moment.writers), default=0)
        depth = self._depths.get(size, 0)
        return (self._arm, depth) if depth else (None, 0)


class Length(Rival):
    """D follows the average accepted length: its rounding plus one, at least 1 (an average of
    accepted tokens at D = 0 would say nothing)."""

    def __init__(self, arm: Arm, newest: float = 0.2) -> None:
        self._arm, self._newest, self._mean = arm, newest, 3.0

    def choice(self, moment: Moment) -> Choice:
        return self._arm, min(max(round(self._mean) + 1, 1), self._arm.max_depth)

    def earned(self, moment: Moment, choice: Choice, tokens: float, accepted: float) -> None:
        self._mean += self._newest * (accepted - self._mean)


class Ucb(Rival):
    """UCB1 over (mechanism, D), D = 0 among them, on tokens per second against the best seen; with
    a discount, its non-stationary form (Garivier and Moulines, 2011). One bandit for each size of
    batch, since a reward means nothing across them."""

    def __init__(self, arms: Sequence[Arm], discount: float = 1.0) -> None:
        self._choices: list[Choice] = [(None, 0)]
        self._choices += [(arm, d) for arm in arms for d in range(1, arm.max_depth + 1)]
        self._discount = discount
        self._counts: dict[int, list[float]] = {}
        self._sums: dict[int, list[float]] = {}
        self._most: dict[int, float] = {}

    def choice(self, moment: Moment) -> Choice:
        size = moment.writers
        counts = self._counts.setdefault(size, [0.0] * len(self._choices))
        sums = self._sums.setdefault(size, [0.0] * len(self._choices))
        total = max(sum(counts), 1.0)

        def bound(i: int) -> float:
            if counts[i] < 1e-3:
                return math.inf
            return sums[i] / counts[i] + math.sqrt(0.5 * math.log(total) / counts[i])

        return self._choices[max(range(len(self._choices)), key=bound)]

    def earned(self, moment: Moment, choice: Choice, tokens: float, accepted: float) -> None:
        size, place = moment.writers, self._choices.index(choice)
        most = self._most[size] = max(self._most.get(size, 0.0), tokens)
        counts, sums = self._counts[size], self._sums[size]
        for i in range(len(counts)):
            counts[i] *= self._discount
            sums[i] *= self._discount
        counts[place] += 1.0
        sums[place] += tokens / most
