"""From what an engine counts of its decisions to what the control plane says of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilotfish.v1 import decisions_pb2 as pb


def cohort_figures(stats: Mapping[str, Any]) -> list[pb.CohortFigures]:
    """Of `EngineService.stats()`, by cohort. What an engine without a policy leaves out is empty.

    decisions: counts by (cohort, mechanism, placement, reason). depths: D by (cohort, mechanism).
    ratios: (ratio, low, high) by cohort. alarms: counts by cohort.
    """
    found: dict[str, pb.CohortFigures] = {}

    def of(cohort: str) -> pb.CohortFigures:
        return found.setdefault(cohort, pb.CohortFigures(cohort=cohort))

    for (cohort, mechanism, placement, reason), count in stats.get("decisions", {}).items():
        of(cohort).decisions.add(
            mechanism=mechanism, placement=placement, reason=reason, count=int(count)
        )
    for (cohort, mechanism), depth in stats.get("depths", {}).items():
        of(cohort).depths.add(mechanism=mechanism, depth=int(depth))
    for cohort, (ratio, low, high) in stats.get("ratios", {}).items():
        of(cohort).ratio.CopyFrom(pb.SpeculationRatio(ratio=ratio, low=low, high=high))
    for cohort, alarms in stats.get("alarms", {}).items():
        of(cohort).alarms = int(alarms)
    return [found[cohort] for cohort in sorted(found)]
