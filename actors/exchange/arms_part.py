"""One of several ways to draft: its port, behind a wall of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from actors.contracts import DraftPort, Gathered
from policies.choice import Arm

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """mechanism: "" takes remote drafters of any that no other part has. port: with one arm.

    Ports contain what drafters do wrong; this contains ports, so that a bug in one costs the rows
    that are asked of it and no others (law L2).
    """

    mechanism: str
    remote: bool
    port: DraftPort

    @property
    def name(self) -> str:
        return f"{self.mechanism or 'any'}@{'remote' if self.remote else 'colocated'}"

    @property
    def arms(self) -> tuple[Arm, ...]:
        try:
            return self.port.arms
        except Exception:
            log.exception("%s cannot say whether it is up", self.name)
            return ()

    def did(self, call: Callable[[], None]) -> bool:
        """Whether a call of its port ended well."""
        try:
            call()
        except Exception:
            log.exception("%s failed; what it was asked for runs without drafts", self.name)
            return False
        return True

    def gather(self, wanted: dict[str, int], worth_s: Mapping[str, float]) -> Gathered:
        try:
            return self.port.gather(wanted, worth_s)
        except Exception:
            log.exception("%s failed; its rows run without drafts", self.name)
            return Gathered(missing=dict.fromkeys(wanted, "fault"))
