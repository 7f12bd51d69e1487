"""Where a step's time goes: draft, wire, verify, sample, rest (ms a step of the engine).

draft and wire are what the step waited for, parted as the blocks' own way was parted; what a
drafter does while the verifier is busy costs nothing and is not in them. A co-located drafter is
waited for all the time it drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.bench.attempt import Attempt
from cluster.sighting import Sighting


@dataclass(frozen=True, slots=True)
class Split:
    """Milliseconds a step, summing to step_ms. block_draft_ms, block_wire_ms: of one block's whole
    way from asking to arrival, hidden or not; None where no block came."""

    steps: int
    step_ms: float
    draft_ms: float
    wire_ms: float
    verify_ms: float
    sample_ms: float
    rest_ms: float
    block_draft_ms: float | None
    block_wire_ms: float | None


def split_of(attempts: Sequence[Attempt]) -> Split | None:
    """None when no step was taken, or by servers that do not say."""
    steps = sum(a.after.steps - a.before.steps for a in attempts)
    if steps <= 0:
        return None

    def a_step(name: str) -> float:
        return 1e3 * _added(attempts, name) / steps

    blocks = sum(a.after.blocks - a.before.blocks for a in attempts)
    drafting, whole = _added(attempts, "draft_s"), _added(attempts, "block_s")
    share = min(1.0, drafting / whole) if whole > 0 else 1.0
    busy, wait = a_step("busy_s"), a_step("wait_s")
    verify, sample = a_step("forward_s"), a_step("sample_s")
    return Split(
        steps=steps,
        step_ms=busy,
        draft_ms=wait * share,
        wire_ms=wait * (1 - share),
        verify_ms=verify,
        sample_ms=sample,
        rest_ms=max(0.0, busy - wait - verify - sample),
        block_draft_ms=1e3 * drafting / blocks if blocks else None,
        block_wire_ms=1e3 * max(0.0, whole - drafting) / blocks if blocks else None,
    )


def _added(attempts: Sequence[Attempt], name: str) -> float:
    def value(sighting: Sighting) -> float:
        seconds: float = getattr(sighting, name)
        return seconds

    return sum(value(a.after) - value(a.before) for a in attempts)
