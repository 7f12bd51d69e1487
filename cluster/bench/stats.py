"""Medians, quantiles, and ratios with their spread. Pure; the generator's seed is an argument."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 2000
LEAST_PAIRS = 3  # an interval over fewer pairs would be a guess


@dataclass(frozen=True, slots=True)
class Spread:
    """Quantiles of a latency in seconds."""

    mean: float
    p50: float
    p95: float
    p99: float
    count: int


@dataclass(frozen=True, slots=True)
class Ratio:
    """Our rate over the baseline's. low, high: 95% bootstrap interval over `pairs`, None where
    there are too few of them."""

    value: float
    low: float | None
    high: float | None
    pairs: int


@dataclass(frozen=True, slots=True)
class Pair:
    """The same work by both legs: amounts and the seconds they took."""

    amount: float
    seconds: float
    base_amount: float
    base_seconds: float


def spread(values: Sequence[float]) -> Spread | None:
    """None of nothing: a latency that was not observed is absent, not zero."""
    if not values:
        return None
    p50, p95, p99 = (float(q) for q in np.quantile(np.asarray(values), (0.5, 0.95, 0.99)))
    return Spread(statistics.fmean(values), p50, p95, p99, len(values))


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def ratio(pairs: Sequence[Pair], seed: int = 0) -> Ratio | None:
    """Rate over rate, each of them total amount over total seconds, so that long answers weigh as
    long as they took. Resampled by pairs, for both legs of a pair met the same prompts."""
    kept = [p for p in pairs if p.seconds > 0 and p.base_seconds > 0 and p.base_amount > 0]
    if not kept:
        return None
    table = np.array([(p.amount, p.seconds, p.base_amount, p.base_seconds) for p in kept])
    value = float(_rate_ratio(table.sum(axis=0)))
    if len(kept) < LEAST_PAIRS:
        return Ratio(value, None, None, len(kept))
    draw = np.random.default_rng(seed)
    chosen = draw.integers(0, len(kept), size=(RESAMPLES, len(kept)))
    low, high = np.quantile(_rate_ratio(table[chosen].sum(axis=1).T), (0.025, 0.975))
    return Ratio(value, float(low), float(high), len(kept))


def _rate_ratio(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """sums: [4, …] in Pair's order."""
    amount, seconds, base_amount, base_seconds = sums
    ratios: NDArray[np.float64] = (amount / seconds) / (base_amount / base_seconds)
    return ratios
