"""Which ways to draft a verifier's policy wants, whether their drafters are there or not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from policies.autoscale_pool import Want
from policies.choice import Arm, choose
from policies.choice_hold import HYSTERESIS
from policies.choice_records import Moment
from policies.choice_view import State, View
from policies.estimate import ENOUGH_BLOCKS


def wants(state: State, moment: Moment, depth: int, arms: Iterable[Arm]) -> dict[Arm, Want]:
    """Of `arms`, those that the batch of `moment` wants, and why; nobody writes, nobody wants.

    An arm that is not up is judged by what was learnt and measured while it was."""
    if not moment.writers or not depth:
        return {}
    found: dict[Arm, Want] = {}
    for arm in arms:
        up = arm in moment.arms
        there = moment if up else replace(moment, arms=(*moment.arms, arm))
        view = View(state, there, depth)
        if any(_picked(state, cohort, arm) for cohort in view.cohorts):
            found[arm] = "used"
        elif arm not in state.draft or any(
            view.evidence(cohort, arm) < ENOUGH_BLOCKS for cohort in view.cohorts
        ):
            found[arm] = "due"
        elif not up and _gains(view, state, arm):
            found[arm] = "gain"
    return found


def _picked(state: State, cohort: str, arm: Arm) -> bool:
    pick = state.held.picks.get(cohort)
    return pick is not None and pick.arm == arm and pick.depth > 0


def _gains(view: View, state: State, arm: Arm) -> bool:
    """Whether some cohort would do better by it than by what it does, beyond hysteresis."""
    now = {c: p for c, p in state.held.picks.items() if c in view.counts}
    picks, rate = choose(view.batch, now)
    used = any(pick.arm == arm for pick in picks.values())
    return used and rate > (1.0 + HYSTERESIS) * view.batch.rate(now)
