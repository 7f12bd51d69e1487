"""What the policy has decided, in numbers: the source of its metrics, traces and the live page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from policies import control_ratio as control
from policies.choice_records import Plan
from policies.choice_view import State


@dataclass(slots=True)
class Figures:
    """decisions: request-steps by (cohort, mechanism, placement, reason); mechanism and placement
    are empty where nothing was drafted. depths: the newest D by (cohort, mechanism), the mechanism
    empty for 0. alarms: changes of texts or costs that were noticed, by cohort."""

    decisions: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    depths: dict[tuple[str, str], int] = field(default_factory=dict)
    alarms: Counter[str] = field(default_factory=Counter)
    _newest: list[tuple[tuple[str, str, str, str], int]] = field(default_factory=list)

    def decided(self, plans: Mapping[str, Plan], counts: Mapping[str, int]) -> None:
        """After a decision; counts: requests that write, by cohort."""
        self._newest = []
        for cohort, plan in plans.items():
            arm = plan.arm
            mechanism, placement = (arm.mechanism, arm.placement) if arm else ("", "")
            self._newest.append(((cohort, mechanism, placement, plan.reason), counts[cohort]))
            self.depths[cohort, mechanism] = plan.depth
        self.again()

    def again(self) -> None:
        """After a step for which the newest decision holds as well."""
        for labels, count in self._newest:
            self.decisions[labels] += count

    def changed(self, before: Mapping[str, int], after: Mapping[str, int]) -> None:
        """before, after: the step of each cohort's last change, around what the policy learnt."""
        self.alarms.update(cohort for cohort, step in after.items() if before.get(cohort) != step)

    def repriced(self, cohorts: Iterable[str]) -> None:
        """What steps take has changed under these."""
        self.alarms.update(list(cohorts))

    def told(self, state: State) -> dict[str, Any]:
        """Copies, for those who read them on another thread. state: the policy's."""
        return {
            "decisions": dict(self.decisions),
            "depths": dict(self.depths),
            "ratios": ratios(state),
            "alarms": dict(self.alarms),
        }


def ratios(state: State) -> dict[str, tuple[float, float, float]]:
    """Of speculation to standard decode, by cohort: the ratio and its 95% interval, where the
    control has measured enough pairs to say."""
    found = {cohort: control.ratio(ledger) for cohort, ledger in state.ledgers.items()}
    return {
        cohort: (of.ratio, of.low, of.high)
        for cohort, of in found.items()
        if of.pairs >= control.INTERVAL_PAIRS
    }
