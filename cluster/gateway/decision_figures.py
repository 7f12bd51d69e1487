"""What engines have decided for each cohort, and why, over all verifiers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cluster.gateway.cells import OTHER, Cells
from cluster.gateway.growth import Growth
from pilotfish.v1 import control_pb2 as pb
from pilotfish.v1 import decisions_pb2 as decisions_pb

NONE = "none"
"""The mechanism and the placement of standard decode."""
_Decision = tuple[str, str, str]  # mechanism, placement, reason


@dataclass(slots=True)
class Newest:
    """A cohort as it was last seen: decisions since the look before, D by mechanism, the control's
    ratio with its 95% interval (of several verifiers the one that gains least). since_s: the time
    of that look before; None for the first look, whose decisions may be as old as the engine."""

    decisions: Counter[_Decision] = field(default_factory=Counter)
    depths: dict[str, int] = field(default_factory=dict)
    ratio: tuple[float, float, float] | None = None
    since_s: float | None = None


class DecisionFigures:
    """cohorts: the names that the rules can give; what a verifier says of others, which it may
    while a rollout changes the rules, is counted as `other`. clock: of looks, in seconds."""

    def __init__(
        self,
        cells: Cells,
        cohorts: Iterable[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known = frozenset(cohorts)
        self.clock = clock
        self._looked_s: float | None = None
        self.newest: dict[str, Newest] = {}
        self.decisions = cells.table(
            "pilotfish:decisions",
            "Requests times steps, by what was decided for their cohort and why.",
            ("cohort", "mechanism", "placement", "reason"),
        )
        self.alarms = cells.table(
            "pilotfish:change_alarms", "Changes of texts or costs that were noticed.", ("cohort",)
        )
        self._depths = cells.table(
            "pilotfish:draft_length",
            "D as it was last decided; 0 for a mechanism that is not in use.",
            ("cohort", "mechanism"),
            gauge=True,
        )
        self._ratios = [
            cells.table(f"pilotfish:speculation_ratio{end}", text, ("cohort",), gauge=True)
            for end, text in (
                ("", "Speed against standard decode, by the control; the least of all verifiers."),
                ("_low", "Lower end of its 95% interval."),
                ("_high", "Upper end of its 95% interval."),
            )
        ]
        self._growth = Growth[tuple[str, ...]]()

    def update(self, status: pb.Status) -> None:
        fresh: dict[str, Newest] = {}
        for verifier in status.verifiers:
            engine = verifier.verifier, verifier.pid
            for figures in verifier.cohorts:
                cohort = figures.cohort if figures.cohort in self._known else OTHER
                self._read(engine, cohort, figures, fresh.setdefault(cohort, Newest()))
        for cohort, now in fresh.items():
            self._show(cohort, now)
        self._looked_s = self.clock()

    def _read(
        self,
        engine: tuple[str, int],
        cohort: str,
        figures: decisions_pb.CohortFigures,
        now: Newest,
    ) -> None:
        totals: dict[tuple[str, ...], float] = {
            (figures.cohort, d.mechanism or NONE, d.placement or NONE, d.reason): float(d.count)
            for d in figures.decisions
        }
        totals[(figures.cohort,)] = float(figures.alarms)
        used = set()
        for (_, *decision), by in self._growth.since(engine, totals).items():
            if not decision:
                self.alarms.at(cohort).inc(by)
                continue
            mechanism, placement, reason = decision
            self.decisions.at(cohort, mechanism, placement, reason).inc(by)
            now.decisions[mechanism, placement, reason] += int(by)
            used.add(mechanism)
        for newest in figures.depths:
            mechanism = newest.mechanism or NONE
            depth = newest.depth if mechanism in used else 0
            now.depths[mechanism] = max(now.depths.get(mechanism, 0), depth)
        if figures.HasField("ratio"):
            ratio = figures.ratio.ratio, figures.ratio.low, figures.ratio.high
            now.ratio = ratio if now.ratio is None else min(ratio, now.ratio)

    def _show(self, cohort: str, now: Newest) -> None:
        """While nobody asks anything of a cohort, what was last decided for it stays."""
        before = self.newest.get(cohort, Newest())
        if not now.decisions:
            now.decisions, now.depths = before.decisions, before.depths
            now.since_s = before.since_s
        else:
            now.since_s = self._looked_s
        now.ratio = now.ratio or before.ratio
        self.newest[cohort] = now
        for mechanism, depth in now.depths.items():
            if mechanism != NONE:
                self._depths.at(cohort, mechanism).value = float(depth)
        for table, value in zip(self._ratios, now.ratio or (), strict=False):
            table.at(cohort).value = value
