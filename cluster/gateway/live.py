"""The live page: what is decided for each cohort now, and why. /live is the page, /live/state what
it asks for every other second; both are as open as /metrics, and show nothing else."""

from __future__ import annotations

import asyncio
import logging
from importlib.resources import files

from starlette.responses import HTMLResponse, JSONResponse, Response

from cluster.gateway.answers import Json
from cluster.gateway.cohort_counts import Delivered
from cluster.gateway.decision_figures import NONE, Newest
from cluster.gateway.engine_figures import StatusSource
from cluster.gateway.metrics import GatewayMetrics
from cluster.gateway.service import GenerationService
from pilotfish.v1 import control_pb2 as pb
from policies.choice_reasons import MEANING

logger = logging.getLogger(__name__)

# The page loads nothing from anywhere and talks to nobody but this server.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; frame-ancestors 'none'"
)
_HEADERS = {"content-security-policy": _POLICY, "cache-control": "no-store"}


class LiveRoutes:
    """status: what is asked for the figures of engines; None shows what was delivered alone."""

    def __init__(self, service: GenerationService, status: StatusSource | None = None) -> None:
        self._service = service
        self._status = status
        self._page = files("cluster.gateway").joinpath("live.html").read_text("utf-8")

    async def page(self) -> Response:
        return HTMLResponse(self._page, headers=_HEADERS)

    async def state(self) -> Response:
        """Where engines cannot be asked now, their last figures, and `stale` says so."""
        status = None
        if self._status is not None:
            try:
                async with asyncio.timeout(self._service.settings.health_timeout_s):
                    status = await self._status()
            except Exception as error:
                logger.info("no figures of the engines: %r", error)
            else:
                self._service.metrics.engines.update(status)
        state = live_state(self._service.model_name, self._service.metrics, status)
        return JSONResponse(state, headers={"cache-control": "no-store"})


def live_state(model: str, metrics: GatewayMetrics, status: pb.Status | None) -> Json:
    """What the page shows, by cohort; plain numbers, null for what is not known."""
    newest, delivered = metrics.engines.decisions.newest, metrics.cohorts.delivered()
    alarms = {labels[0]: cell.value for labels, cell in metrics.engines.decisions.alarms.cells()}
    verifiers = [] if status is None else status.verifiers
    return {
        "model": model,
        "stale": status is None,
        "verifiers": len(verifiers),
        "running": sum(v.running for v in verifiers),
        "waiting": sum(v.waiting for v in verifiers),
        "reasons": dict(MEANING),
        "cohorts": [
            {
                "cohort": cohort,
                **_decided(newest.get(cohort, Newest())),
                **_delivered(delivered.get(cohort, Delivered())),
                "changes": int(alarms.get(cohort, 0)),
            }
            for cohort in sorted(newest.keys() | delivered.keys())
        ],
    }


def _decided(newest: Newest) -> Json:
    """The commonest decision since the last look, and its share."""
    ratio = newest.ratio or (None, None, None)
    found: Json = dict(zip(("ratio", "ratio_low", "ratio_high"), ratio, strict=True))
    if not newest.decisions:
        return found | dict.fromkeys(("mechanism", "placement", "depth", "reason", "share"))
    (decision, count), *_ = newest.decisions.most_common(1)
    mechanism, placement, reason = decision
    return found | {
        "mechanism": None if mechanism == NONE else mechanism,
        "placement": None if placement == NONE else placement,
        "depth": newest.depths.get(mechanism, 0),
        "reason": reason,
        "share": count / newest.decisions.total(),
    }


def _delivered(delivered: Delivered) -> Json:
    """Since this gateway's start; a rate of nothing is null."""
    return {
        "drafts": delivered.drafts,
        "drafted": delivered.drafted,
        "accepted": delivered.accepted,
        "acceptance": delivered.accepted / delivered.drafted if delivered.drafted else None,
        "acceptance_length": (
            1 + delivered.accepted / delivered.drafts if delivered.drafts else None
        ),
        "fallbacks": delivered.fallbacks,
    }
