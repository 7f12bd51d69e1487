"""The draft length D of a cohort, with its reason: a fixed D for now, 0 where nobody drafts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Reason = Literal["configured", "off", "no-drafter"]


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """depth 0 is standard decode. An empty mechanism means any that is up."""

    depth: int
    reason: Reason
    mechanism: str = ""


def fixed(depth: int, *, drafters_up: int, colocated: bool = False) -> DraftPlan:
    """`depth` while somebody can draft: a remote drafter under lease, or the verifier itself."""
    if depth <= 0:
        return DraftPlan(0, "off")
    if not colocated and drafters_up <= 0:
        return DraftPlan(0, "no-drafter")
    return DraftPlan(depth, "configured")
