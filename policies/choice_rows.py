"""How many of the tokens that came a step verifies, request by request, once blocks are there.

The plan has set the most (`policies.choice`); the client's wish and the tokens it may still write
set less; and the budget spreads what rows are worth their time by survival over the whole batch
(`policies.budget`). What was spent on drafting is spent: it lengthens every choice alike.

Under `rejection` and `block`, whether position k is verified may depend on anything but x_k and
what follows it. So there a row's survival is its cohort's, from earlier rounds; what is known of
this very block, its confidence say, is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from policies.budget import allot
from policies.choice_reasons import Reason
from policies.estimate import Rule, shadows_count


@dataclass(frozen=True, slots=True)
class Offer:
    """One request's block. size: tokens that came. wish: the client's n_max; None is any. left:
    tokens it may still write beside the one it writes anyway. survive: S(1), S(2), … of this very
    block, where more is known of it than of its cohort."""

    cohort: str
    size: int
    wish: int | None = None
    left: int | None = None
    survive: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Drafted tokens of a request that this step verifies, and why not more or none."""

    depth: int
    reason: Reason


def rows(
    offers: Sequence[Offer],
    planned: Mapping[str, int],
    survive: Mapping[str, Sequence[float]],
    writers: int,
    step_s: Callable[[float], float],
    *,
    rule: Rule,
    spent_s: float = 0.0,
    other_rows: int = 0,
) -> list[Row]:
    """Depth and reason for each offer. planned: D by cohort. survive: by cohort. writers: requests
    that write in this step, those without an offer among them. spent_s: on drafting and the wire.
    """
    bounds = [_bound(offer, planned.get(offer.cohort, 0)) for offer in offers]
    chances: list[Sequence[float]] = []
    for offer, (most, _) in zip(offers, bounds, strict=True):
        own = offer.survive if shadows_count(rule) else None
        chances.append((own if own is not None else survive.get(offer.cohort, ()))[:most])
    depths = allot(chances, writers, step_s, other_rows=other_rows, spent_s=spent_s)
    return [
        Row(depth, reason if depth == most else "budget")
        for depth, (most, reason) in zip(depths, bounds, strict=True)
    ]


def _bound(offer: Offer, planned: int) -> tuple[int, Reason]:
    """The most that may be verified, and what sets it."""
    most = min(offer.size, planned)
    named: Reason = "gain" if planned else "no-gain"
    if offer.wish is not None and offer.wish < most:
        most, named = max(offer.wish, 0), "wish"
    if offer.left is not None and offer.left < most:
        most, named = max(offer.left, 0), "end"
    return most, named
