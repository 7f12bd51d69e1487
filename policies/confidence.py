"""How likely the tokens of this very block are accepted, where its drafter says how sure it is.

A drafter's word is not taken: of tokens it was about as sure of, so many came true (by bins, for
each mechanism). A request's own text then has its say: its tokens have come true so much more, or
less, often than tokens as sure do; as odds, so that what is next to certain stays so. On 5,260
blocks of suffix decoding in recorded copying, code and chat this foretells whether a token is
accepted with all before it with 0.511 nats (0.591 by rates that multiply, in an earlier recording
of the same texts; `infra/adr/0014-every-offered-block-is-scored.md`).

It looks at what was drafted, so where laws are weighed it may not decide what is verified (S16).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

EDGES = (0.2, 0.35, 0.5, 0.65, 0.77, 0.86, 0.92, 0.96)
BINS = len(EDGES) + 1
MEMORY = 400.0
"""Tokens that a bin remembers, on average, and a request:"""
OWN_MEMORY = 40.0
WEIGHT = 4.0
"""Tokens' worth of belief in a drafter of which nothing is known, at so much of what it says:"""
TRUST = 0.7
OWN_WEIGHT = 4.0
"""Expected tokens' worth of belief that a request's text is like others."""
_LEAST, _MOST = 0.02, 0.98


@dataclass(frozen=True, slots=True)
class Calibration:
    """Of one mechanism, by bin: tokens that were decided, and accepted."""

    decided: tuple[float, ...] = (0.0,) * BINS
    accepted: tuple[float, ...] = (0.0,) * BINS


@dataclass(frozen=True, slots=True)
class Own:
    """Of one request: tokens that were accepted and rejected, and that were expected to be."""

    accepted: float = 0.0
    rejected: float = 0.0
    to_accept: float = 0.0
    to_reject: float = 0.0


def survival(state: Calibration, own: Own, confidence: Sequence[float]) -> tuple[float, ...]:
    """P(the first k tokens are all accepted) for k = 1 … len(confidence). confidence: the drafter's
    own, of each token, those before it given."""
    odds = _more(own.accepted, own.to_accept) / _more(own.rejected, own.to_reject)
    result: list[float] = []
    chance = 1.0
    for sure in confidence:
        rate = _rate(state, sure)
        chance *= min(odds * rate / (odds * rate + 1.0 - rate), _MOST)
        result.append(chance)
    return tuple(result)


def scored(
    state: Calibration, own: Own, confidence: Sequence[float], right: int
) -> tuple[Calibration, Own]:
    """After a block of which so many first tokens were accepted; what stands behind a rejected one
    was never decided."""
    decided, accepted = list(state.decided), list(state.accepted)
    keep, own_keep = 1.0 - 1.0 / MEMORY, 1.0 - 1.0 / OWN_MEMORY
    for k, sure in enumerate(confidence[: right + 1]):
        rate, at, true = _rate(state, sure), bisect_left(EDGES, sure), float(k < right)
        own = Own(
            own.accepted * own_keep + true,
            own.rejected * own_keep + 1.0 - true,
            own.to_accept * own_keep + rate,
            own.to_reject * own_keep + 1.0 - rate,
        )
        decided[at] = decided[at] * keep + 1.0
        accepted[at] = accepted[at] * keep + true
    return Calibration(tuple(decided), tuple(accepted)), own


def _more(seen: float, expected: float) -> float:
    return (seen + OWN_WEIGHT) / (expected + OWN_WEIGHT)


def _rate(state: Calibration, sure: float) -> float:
    at, prior = bisect_left(EDGES, sure), min(max(TRUST * sure, _LEAST), _MOST)
    return (state.accepted[at] + WEIGHT * prior) / (state.decided[at] + WEIGHT)
