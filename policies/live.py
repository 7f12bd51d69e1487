"""What operators may change while serving, and which of two versions of it is the newer.

A deployment gives a configuration; changes are made to it while it serves. A policy actor that
starts is given the deployed one again, and learns of the changes from the verifiers' snapshots and
from its state file. The newest change to the same deployed configuration wins; a deployment of
another one replaces all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from policies.control import Windows
from policies.draftlength import DraftPlan, fixed


@dataclass(frozen=True, slots=True)
class Settings:
    """depth: D, the most for any cohort. off: no speculation for anybody. windows: of the control,
    their seed is the verifier's own. limits: by cohort, the most for it; 0 is standard decode."""

    depth: int
    off: bool = False
    windows: Windows = field(default_factory=Windows)
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Live:
    """base: digest of the deployed configuration. changed: ns since the epoch of the newest change
    while serving, 0 for none."""

    settings: Settings
    base: int
    changed: int = 0


def deployed(live: Live | None, settings: Settings, now_ns: int = 0) -> Live:
    """As a deployment has it: the same one again, as after a restart, leaves what was changed
    since. now_ns: 0 while nobody has been served by what was before."""
    base = _digest(settings)
    if live is not None and live.base == base:
        return live
    return Live(settings, base, max(now_ns, live.changed + 1) if live and now_ns else 0)


def changed(live: Live, settings: Settings, now_ns: int) -> Live:
    """After an operator's change: newer than any before it, whatever the clock says."""
    return Live(settings, live.base, max(now_ns, live.changed + 1))


def newer(own: Live, heard: Live) -> Live:
    """`heard` where it is a later change to the same deployed configuration."""
    return heard if heard.base == own.base and heard.changed > own.changed else own


def plans(
    settings: Settings, *, most: int, drafters_up: int, colocated: bool
) -> tuple[DraftPlan, dict[str, DraftPlan]]:
    """The plan of cohorts without a limit of their own, and of each that has one. most: the D that
    drafters were started for."""

    def plan(depth: int) -> DraftPlan:
        depth = 0 if settings.off else min(depth, settings.depth, most)
        return fixed(depth, drafters_up=drafters_up, colocated=colocated)

    return plan(settings.depth), {c: plan(depth) for c, depth in sorted(settings.limits.items())}


def _digest(settings: Settings) -> int:
    windows = settings.windows.steps, settings.windows.period
    parts = settings.depth, settings.off, windows, sorted(settings.limits.items())
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big")
