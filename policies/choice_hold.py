"""When a better choice is taken: hysteresis, so that a policy at its threshold stays where it is.

A drafting choice is left for another one when that is better by more than 2% at two looks in a
row, and not within 16 steps of the last change. Towards standard decode the way is short: two looks
at which it is better at all, or one at which the held choice would lose 2% even with rates at their
upper 90% bound. So within any 16 steps there is at most one change to other drafting and
one to standard decode after it. What a drafter that is gone was doing ends at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from policies.choice import STANDARD, Batch, Pick, choose
from policies.choice_reasons import Reason

HYSTERESIS = 0.02
TURNS = 2
DWELL = 16
CERTAIN = 1.28
"""Standard deviations to the upper 90% bound."""
LOSS = 0.98
"""Of standard decode's rate: what even good luck must reach."""


@dataclass(frozen=True, slots=True)
class Held:
    """picks: of every cohort that has been seen. since: the step of the last change; None before
    the first. better: steps in a row in which another choice was."""

    picks: Mapping[str, Pick] = field(default_factory=dict)
    since: int | None = None
    better: int = 0


class Prospect(Protocol):
    """A batch as expected, and the same with every rate at its upper bound."""

    @property
    def batch(self) -> Batch: ...

    @property
    def hopeful(self) -> Batch: ...


def held(
    state: Held, view: Prospect, step: int, *, fresh: bool = False
) -> tuple[Held, dict[str, Reason]]:
    """What the batch's cohorts do in this step, in `Held.picks`, each with its reason.

    fresh: what held picks were chosen on is void, because texts or costs have changed; then nothing
    is waited for."""
    batch = view.batch
    now = {cohort: _still(batch, cohort, state) for cohort in batch.cohorts}
    lost = {c for c in batch.cohorts if now[c] != state.picks.get(c, STANDARD)}
    best, rate = choose(batch, now)
    held_rate, standard_rate = batch.rate(now), batch.rate({})
    if best == now or rate <= held_rate:
        return _kept(state, now, lost, step, 0), _reasons(batch, now, lost, "no-gain", "gain")
    drops = all(best[c] in (now[c], STANDARD) for c in batch.cohorts)
    if drops and any(p.depth for p in now.values()):
        ruinous = view.hopeful.rate(now) < LOSS * standard_rate
        ready, wanted = ruinous or fresh, 0.0
    else:
        rested = state.since is None or step - state.since >= DWELL
        ready, wanted = fresh, HYSTERESIS
        if not rested and not fresh:
            return _kept(state, now, lost, step, 0), _reasons(batch, now, lost, "held", "held")
    if rate <= (1.0 + wanted) * held_rate:
        return _kept(state, now, lost, step, 0), _reasons(batch, now, lost, "held", "held")
    better = state.better + 1
    if better < TURNS and not ready:
        return _kept(state, now, lost, step, better), _reasons(batch, now, lost, "held", "held")
    moved = Held({**state.picks, **best}, step, 0)
    return moved, _reasons(batch, best, lost, "no-gain", "gain")


def _still(batch: Batch, cohort: str, state: Held) -> Pick:
    """What the cohort was doing, if its drafter is still there."""
    pick = state.picks.get(cohort, STANDARD)
    return pick if pick.arm in batch.options[cohort] else STANDARD


def _kept(state: Held, now: dict[str, Pick], lost: set[str], step: int, better: int) -> Held:
    since = step if lost else state.since
    return Held({**state.picks, **now}, since, better)


def _reasons(
    batch: Batch, picks: Mapping[str, Pick], lost: set[str], standard: Reason, drafting: Reason
) -> dict[str, Reason]:
    return {
        c: drafting if picks[c].depth else "no-drafter" if c in lost else standard
        for c in batch.cohorts
    }
