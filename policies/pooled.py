"""What all verifiers have learnt together, and how one begins from it.

The policy actor keeps each verifier's newest tally (`policies.tally`) and adds them up; a tally is
a total, so the order in which reports come, and reports that come twice, change nothing. What was
heard longer ago counts less, also of verifiers that are gone: a verifier that takes the place of
another begins where that one was.

A verifier begins a cohort from the sum when it meets it for the first time, or after so long that
it has forgotten it: with a bounded weight, enough to be believed and soon outvoted by blocks of its
own. What it knows itself is never touched, and without a policy actor it goes on with that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from policies.acceptance import Acceptance
from policies.cohorts import MAX_COHORTS
from policies.estimate import ENOUGH_BLOCKS, EVERYONE, MEMORY, Counts, Estimate, Estimates, Key
from policies.tally import LEAST_BLOCKS, MAX_MECHANISMS, Totals

MEMORY_S = 900.0
"""Seconds that a report lasts, on average."""
MAX_VERIFIERS = 1024
BEGIN_BLOCKS = 2.0 * ENOUGH_BLOCKS
"""At most so much is believed of what others have learnt."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """One verifier's newest tally. heard_s: when, on the clock of whoever keeps the pool."""

    sequence: int
    heard_s: float
    totals: Totals


Pool = Mapping[str, Contribution]
"""By verifier, which is a name that is used once."""


def reported(pool: Pool, verifier: str, newest: Contribution) -> tuple[Pool, bool]:
    """After a report; whether it brought anything. Of more verifiers than are kept the one with
    the least evidence goes."""
    known = pool.get(verifier)
    if newest.sequence <= (0 if known is None else known.sequence):
        return pool, False
    result = {**pool, verifier: newest}
    if len(result) > MAX_VERIFIERS:
        del result[min(sorted(result), key=lambda name: _evidence(result[name], newest.heard_s))]
    return result, True


def thinned(pool: Pool, now_s: float) -> Pool:
    """Without those of which nothing is left."""
    kept = {name: of for name, of in pool.items() if _evidence(of, now_s) >= LEAST_BLOCKS}
    return pool if len(kept) == len(pool) else kept


def summed(pool: Pool, now_s: float) -> dict[Key, Counts]:
    """By cohort and mechanism, and under EVERYONE by mechanism: of the 64 cohorts and 16 mechanisms
    with the most evidence."""
    found: dict[Key, list[tuple[float, Counts]]] = {}
    for name in sorted(pool):  # the same sum, to the bit, in whatever order they came
        keep = _keep(pool[name], now_s)
        for key, counts in pool[name].totals.items():
            found.setdefault(key, []).append((keep, counts))
    sums = {key: _sum(parts) for key, parts in found.items()}
    cohorts = _richest(sums, 0, MAX_COHORTS)
    mechanisms = _richest(sums, 1, MAX_MECHANISMS)
    result = {k: sums[k] for k in sorted(sums) if k[0] in cohorts and k[1] in mechanisms}
    for mechanism in sorted(mechanisms):
        parts = [(1.0, counts) for key, counts in result.items() if key[1] == mechanism]
        result[EVERYONE, mechanism] = _sum(parts)
    return result


def begun(
    estimates: Estimates, pooled: Totals, cohorts: Collection[str], step: int
) -> dict[Key, Estimate]:
    """The engine's estimates when it meets `cohorts` (those of the batch): where it has none, or
    less than half a block is left of them, the pool's, cut to BEGIN_BLOCKS."""
    result = dict(estimates)
    for key, counts in pooled.items():
        if key[0] not in cohorts and key[0] != EVERYONE:
            continue
        own = estimates.get(key, Estimate())
        left = Counts(own.accept, own.reach).blocks * math.exp(min(own.step - step, 0) / MEMORY)
        if left < LEAST_BLOCKS <= counts.blocks:
            part = counts.faded(min(1.0, BEGIN_BLOCKS / counts.blocks))
            result[key] = Estimate(part.accept, part.reach, own.watch, step)
    return result


def _keep(of: Contribution, now_s: float) -> float:
    return math.exp(min(of.heard_s - now_s, 0.0) / MEMORY_S)


def _evidence(of: Contribution, now_s: float) -> float:
    return _keep(of, now_s) * sum(counts.blocks for counts in of.totals.values())


def _richest(sums: Totals, part: int, most: int) -> set[str]:
    """The cohorts (part 0) or mechanisms (1) with the most blocks; of equals, by name."""
    blocks: dict[str, float] = {}
    for key, counts in sums.items():
        blocks[key[part]] = blocks.get(key[part], 0.0) + counts.blocks
    return set(sorted(blocks, key=lambda name: (-blocks[name], name))[:most])


def _sum(parts: Sequence[tuple[float, Counts]]) -> Counts:
    return Counts(
        _added([(keep, of.accept) for keep, of in parts]),
        _added([(keep, of.reach) for keep, of in parts]),
    )


def _added(parts: Sequence[tuple[float, Acceptance]]) -> Acceptance:
    """Each by its share."""
    decided = [0.0] * max((len(of.decided) for _, of in parts), default=0)
    accepted = decided.copy()
    for keep, of in parts:
        for k, count in enumerate(of.decided):
            decided[k] += keep * count
            accepted[k] += keep * of.accepted[k]
    return Acceptance(tuple(decided), tuple(accepted))
