"""The live page: what is decided for each cohort now, and why. /live is the page, /live/state what
it asks for every other second; both are as open as /metrics, and show nothing else."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from starlette.responses import HTMLResponse, JSONResponse, Response

from cluster.gateway.engine_figures import StatusSource
from cluster.gateway.live_page import Page, load_page
from cluster.gateway.live_state import Heard, live_state
from cluster.gateway.service import GenerationService
from pilotfish.v1 import control_pb2 as pb

logger = logging.getLogger(__name__)

_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


class LiveRoutes:
    """status: what is asked for the figures of engines; None shows what was delivered alone."""

    def __init__(
        self,
        service: GenerationService,
        status: StatusSource | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._status = status
        self._clock = clock
        self._page: Page = load_page()
        self._heard: tuple[float, pb.Status] | None = None

    async def page(self) -> Response:
        headers = _HEADERS | {
            "content-security-policy": self._page.policy,
            "referrer-policy": "no-referrer",
        }
        return HTMLResponse(self._page.html, headers=headers)

    async def state(self) -> Response:
        """Where engines cannot be asked now, their last figures, and `age_s` says how old."""
        await self._ask()
        settings, heard = self._service.settings, None
        if self._heard is not None:
            heard_s, status = self._heard
            heard = Heard(status, max(0.0, self._clock() - heard_s))
        state = live_state(
            self._service.model_name,
            self._service.metrics,
            heard,
            speculates=settings.num_speculative_tokens > 0,
        )
        return JSONResponse(state, headers=_HEADERS)

    async def _ask(self) -> None:
        if self._status is None:
            return
        try:
            async with asyncio.timeout(self._service.settings.health_timeout_s):
                status = await self._status()
        except Exception as error:
            logger.info("no figures of the engines: %r", error)
        else:
            self._service.metrics.engines.update(status)
            self._heard = self._clock(), status
