"""What measured costs say about D: where stairs are, and what drafting must bring to pay.

The same arithmetic as of a roofline (`policies.codesign.drafting`), of figures that a machine gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from policies import estimate_cost, estimate_draft
from policies.choice import Arm
from policies.codesign.gain import acceptance_for, break_even
from policies.estimate_cost import StepCost
from policies.estimate_draft import DraftCost

STEEP = 1.5
"""A stair: rows that each cost so many times what a row costs on average."""


@dataclass(frozen=True, slots=True)
class Even:
    """A round of `sequences` blocks of `depth`. needs: the AL at which it is worth the standard
    steps that it replaces; acceptance: the chance of each token that brings it, None where none
    does. beyond: more rows or sessions than were measured."""

    arm: Arm
    sequences: int
    depth: int
    rows: int
    standard_s: float
    draft_s: float
    verify_s: float
    needs: float
    acceptance: float | None
    beyond: bool


def stairs(points: Sequence[tuple[int, float]]) -> tuple[int, ...]:
    """The numbers of rows, of (rows, seconds) in ascending order, where the cost jumps."""
    if len(points) < 3:
        return ()
    average_s = (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
    return tuple(
        rows
        for (before, less_s), (rows, more_s) in pairwise(points)
        if average_s > 0.0 and (more_s - less_s) / (rows - before) > STEEP * average_s
    )


def depths(most: int) -> tuple[int, ...]:
    """Those worth a look, up to `most`."""
    return tuple(sorted({d for d in (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32) if d < most} | {most}))


def evens(
    cost: StepCost, drafts: Mapping[Arm, DraftCost], sequences: Sequence[int], context: int
) -> Iterable[Even]:
    """For each way to draft. context: tokens that each sequence attends to."""
    for arm, draft in drafts.items():
        for count in sequences:
            for depth in depths(arm.max_depth):
                yield _even(cost, arm, draft, count, depth, count * context)


def _even(
    cost: StepCost, arm: Arm, draft: DraftCost, sequences: int, depth: int, context: int
) -> Even:
    rows = sequences * (1 + depth)
    standard_s = estimate_cost.step_s(cost, sequences, sequences, context)
    verify_s = estimate_cost.step_s(cost, rows, sequences, context)
    draft_s = estimate_draft.block_s(draft, sequences, depth, remote=arm.remote)
    needs = break_even(standard_s, draft_s, verify_s)
    beyond = rows > cost.rows[-1] or sequences > draft.grid.sessions[-1]
    acceptance = acceptance_for(needs, depth)
    return Even(
        arm,
        sequences,
        depth,
        rows,
        standard_s,
        draft_s,
        verify_s,
        needs,
        acceptance,
        beyond,
    )
