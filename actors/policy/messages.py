"""Between the messages of `control.proto` and what policies decide by. Peers' sizes and numbers are
checked here, before anything is made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from actors.policy.errors import ReportRefused
from pilotfish.v1 import control_pb2 as pb
from policies.acceptance import MAX_POSITIONS as MAX_DEPTH
from policies.acceptance import Acceptance
from policies.cohorts import MAX_COHORTS
from policies.control import Windows
from policies.draftlength import DraftPlan
from policies.estimate import EVERYONE, Counts, Key
from policies.live import Live, Settings
from policies.pooled import Contribution
from policies.tally import MAX_MECHANISMS, MAX_POSITIONS, Totals

MAX_NAME = 64
MAX_COUNT = 1e9
"""Blocks: more than fade in the memory of any verifier."""
_PAIRS = (("decided", "accepted"), ("asked", "came"))


# ------------------------------------------------------------------ tallies


def tally_messages(totals: Totals) -> list[pb.Tally]:
    """In the order of their names."""
    return [
        pb.Tally(
            cohort=cohort,
            mechanism=mechanism,
            decided=counts.accept.decided,
            accepted=counts.accept.accepted,
            asked=counts.reach.decided,
            came=counts.reach.accepted,
        )
        for (cohort, mechanism), counts in sorted(totals.items(), key=lambda item: item[0])
    ]


def totals_of(tallies: Sequence[pb.Tally], *, pooled: bool = False) -> dict[Key, Counts]:
    """Raises ReportRefused for what breaks the invariants of `Tally` or the bounds on how many.
    pooled: of a snapshot, where the empty cohort stands for all together."""
    if len(tallies) > (MAX_COHORTS + pooled) * MAX_MECHANISMS:
        raise ReportRefused(f"tallies: {len(tallies)} of them")
    result: dict[Key, Counts] = {}
    for tally in tallies:
        key = tally.cohort, tally.mechanism
        where = f"tally of cohort {tally.cohort[:MAX_NAME]!r}, {tally.mechanism[:MAX_NAME]!r}"
        if not tally.mechanism or max(len(name) for name in key) > MAX_NAME:
            raise ReportRefused(f"{where}: names have 1 to {MAX_NAME} characters")
        if tally.cohort == EVERYONE and not pooled:
            raise ReportRefused(f"{where}: the sum over cohorts is not a verifier's to send")
        if key in result:
            raise ReportRefused(f"{where}: sent twice")
        accept, reach = (_counts(tally, pair, where) for pair in _PAIRS)
        result[key] = Counts(accept, reach)
    _bounded("cohorts", {cohort for cohort, _ in result if cohort != EVERYONE}, MAX_COHORTS)
    _bounded("mechanisms", {mechanism for _, mechanism in result}, MAX_MECHANISMS)
    return result


def _counts(tally: pb.Tally, pair: tuple[str, str], where: str) -> Acceptance:
    every, some = (tuple(getattr(tally, name)) for name in pair)
    if len(every) != len(some) or len(every) > MAX_POSITIONS:
        raise ReportRefused(
            f"{where}: {len(every)} positions in {pair[0]}, {len(some)} in {pair[1]}; "
            f"equally many are taken, at most {MAX_POSITIONS}"
        )
    if not all(0.0 <= part <= whole <= MAX_COUNT for whole, part in zip(every, some, strict=True)):
        raise ReportRefused(f"{where}: not 0 <= {pair[1]} <= {pair[0]} <= {MAX_COUNT:g}")
    return Acceptance(every, some)


def _bounded(what: str, names: set[str], most: int) -> None:
    if len(names) > most:
        raise ReportRefused(f"tallies of {len(names)} {what}; at most {most} are taken")


# ------------------------------------------------------------------ configuration


def config_message(live: Live) -> pb.PolicyConfig:
    settings = live.settings
    return pb.PolicyConfig(
        off=settings.off,
        depth=settings.depth,
        control=pb.ControlWindows(steps=settings.windows.steps, period=settings.windows.period),
        cohorts=[pb.CohortLimit(cohort=c, depth=d) for c, d in sorted(settings.limits.items())],
        base=live.base,
        changed=live.changed,
    )


def live_of(message: pb.PolicyConfig) -> Live:
    """Raises ReportRefused for one that nobody could have set."""
    limits = {limit.cohort: limit.depth for limit in message.cohorts}
    if len(limits) != len(message.cohorts) or len(limits) > MAX_COHORTS:
        raise ReportRefused(f"config: limits of {len(message.cohorts)} cohorts")
    if any(not 0 < len(cohort) <= MAX_NAME for cohort in limits):
        raise ReportRefused(f"config: a cohort's name has 1 to {MAX_NAME} characters")
    if max((message.depth, *limits.values())) > MAX_DEPTH:
        raise ReportRefused(f"config: a draft length above {MAX_DEPTH}")
    settings = Settings(message.depth, message.off, windows_of(message), limits)
    return Live(settings, message.base, message.changed)


def windows_of(message: pb.PolicyConfig, seed: str = "") -> Windows:
    """Raises ReportRefused for windows that cannot be."""
    try:
        return Windows(seed, message.control.period, message.control.steps)
    except ValueError as error:
        raise ReportRefused(f"config: {error}") from None


def plan_message(plan: DraftPlan, cohort: str = "") -> pb.CohortPlan:
    return pb.CohortPlan(
        cohort=cohort, mechanism=plan.mechanism, depth=plan.depth, reason=plan.reason
    )


# ------------------------------------------------------------------ what is kept


def contribution_messages(
    pool: Iterable[tuple[str, Contribution]], now_s: float
) -> list[pb.Contribution]:
    return [
        pb.Contribution(
            verifier=verifier,
            sequence=of.sequence,
            age_s=max(now_s - of.heard_s, 0.0),
            tallies=tally_messages(of.totals),
        )
        for verifier, of in pool
    ]


def contribution_of(message: pb.Contribution, now_s: float) -> Contribution:
    """Raises ReportRefused."""
    if not (math.isfinite(message.age_s) and message.age_s >= 0.0):
        raise ReportRefused(f"contribution of {message.verifier!r}: {message.age_s} s old")
    return Contribution(message.sequence, now_s - message.age_s, totals_of(message.tallies))
