"""Which remote ways to draft an engine's requests want, whether their drafters are there or not.

On the engine's thread, with each report. A pool of drafters that is at zero has no arm, so what is
configured is asked about, and what was known of it while it was up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from actors.engine.cohorts import cohort_of
from actors.engine.core import Engine
from actors.engine.options import EngineOptions
from policies.autoscale_pool import Want
from policies.autoscale_wish import wants
from policies.choice import Arm, Group


class Wants:
    """remote: mechanisms of the configured remote drafters, "" for one whose name its drafters
    alone know. depth: the configured D."""

    def __init__(self, remote: Sequence[str], depth: int) -> None:
        self._remote = tuple(remote)
        self._depth = depth

    def now(self, engine: Engine) -> dict[str, Want]:
        """By configured mechanism."""
        groups = self._groups(engine)
        if not groups or not self._remote:
            return {}
        if engine.steering is None:
            return dict.fromkeys(self._remote, "used")  # D is fixed: whoever is there is asked
        moment = engine.steering.moment
        if moment is None:
            return {}
        state = engine.steering.policy.state
        arms = {name: self._arm(name, (*moment.arms, *state.draft)) for name in self._remote}
        found = wants(state, replace(moment, groups=groups), self._depth, arms.values())
        return {name: found[arm] for name, arm in arms.items() if arm in found}

    def _groups(self, engine: Engine) -> tuple[Group, ...]:
        """Of the requests that may draft, were there anybody to do it."""
        counts: Counter[tuple[str, int]] = Counter()
        for seq in engine.sequences.values():
            wish = seq.request.max_draft_len
            cap = engine.plan.depth(seq.request.cohort, wish, seq.remaining)
            limit = cap.tokens
            if cap.reason == "no-drafter":
                limit = min(self._depth if wish is None else wish, self._depth, seq.remaining - 1)
            if limit > 0:
                counts[cohort_of(seq), limit] += 1
        return tuple(Group(cohort, count, limit) for (cohort, limit), count in counts.items())

    def _arm(self, name: str, known: Sequence[Arm]) -> Arm:
        """As it is, or was when it was up; else as it would be."""
        others = set(self._remote) - {name, ""}
        fits = (
            arm
            for arm in known
            if arm.remote and (arm.mechanism == name if name else arm.mechanism not in others)
        )
        return next(fits, Arm(name, True, self._depth))


def wants_of(options: EngineOptions) -> Wants:
    """Of the mechanisms that an engine is configured with."""
    remote = [of.drafter for of in options.mechanisms if of.placement == "remote"]
    depth = max((drafter.num_speculative_tokens for drafter in remote), default=0)
    return Wants([drafter.mechanism for drafter in remote], depth)
