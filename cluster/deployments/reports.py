"""From an engine's statistics to what the control plane says of a verifier. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster.deployments.decision_reports import cohort_figures
from pilotfish.v1 import control_pb2 as pb
from pilotfish.v1.demand_pb2 import DraftWish

_TOTAL_FIELDS = tuple(field.name for field in pb.EngineTotals.DESCRIPTOR.fields)
_LINK_FIELDS = tuple(field.name for field in pb.LinkStatus.DESCRIPTOR.fields)


def verifier_status(
    verifier: str, stats: Mapping[str, Any], pools: Mapping[str, str] | None = None
) -> pb.VerifierStatus:
    """A VerifierStatus of `EngineService.stats()`; what the engine does not say stays 0. pools: of
    remote drafters, by the mechanism that the engine knows them by."""
    wants: Mapping[str, str] = stats.get("wants", {})
    return pb.VerifierStatus(
        verifier=verifier,
        pid=int(stats.get("pid", 0)),
        running=int(stats.get("running", 0)),
        waiting=int(stats.get("waiting", 0)),
        free_blocks=int(stats.get("free_blocks", 0)),
        total_blocks=int(stats.get("total_blocks", 0)),
        cached_blocks=int(stats.get("cached_blocks", 0)),
        executor=str(stats.get("executor", "")),
        executor_reason=str(stats.get("executor_reason", "")),
        links=[link_status(link) for link in stats.get("links", ())],
        cohorts=cohort_figures(stats),
        engine=pb.EngineTotals(**{name: stats[name] for name in _TOTAL_FIELDS if name in stats}),
        wishes=[
            DraftWish(pool=pool, why=wants[mechanism])
            for mechanism, pool in (pools or {}).items()
            if mechanism in wants
        ],
    )


def link_status(link: Mapping[str, Any]) -> pb.LinkStatus:
    return pb.LinkStatus(**{name: link[name] for name in _LINK_FIELDS if name in link})
