"""What speculation gives a cohort against standard decode, measured in pairs, and what follows.

A pair is one period (`policies.control`): what the cohort wrote in its speculating steps and in the
window of standard decode, each against what standard decode is modelled to write in that time for
a batch of that size, so that a batch that grows in between favours neither. The estimate is the
mean of the pairs' log ratios with Student's interval. Law L4 is that its lower 95% bound is at
least 0.98.

A cohort whose ratio is under 0.98 while even the upper 99% bound is under 1 goes to standard decode
(99%, because it is looked at again after every pair). Windows then draft for it, and it is let back
in when enough of those pairs reach 1 on average; each relapse doubles how many are enough.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field, replace

LEAST_RATIO = 0.98
LEAST_PAIRS = 8
INTERVAL_PAIRS = 5
MEMORY = 16
"""Newest pairs that are kept, and the most that a way back may ask for."""
_NORMAL_95, _NORMAL_99 = 1.9600, 2.5758


@dataclass(frozen=True, slots=True)
class Side:
    """tokens: written. standard: what standard decode is modelled to write in the same time."""

    tokens: float = 0.0
    standard: float = 0.0

    def plus(self, tokens: float, standard: float) -> Side:
        return Side(self.tokens + tokens, self.standard + standard)

    @property
    def speed(self) -> float:
        """Against the model; 0 while nothing is known."""
        return self.tokens / self.standard if self.standard > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class Ledger:
    """One cohort's. period: the one that is being written; drafting, plain: its two sides. ratios:
    logs of finished pairs. fallen: on standard decode by our own verdict; falls: how often."""

    period: int = 0
    drafting: Side = field(default_factory=Side)
    plain: Side = field(default_factory=Side)
    ratios: tuple[float, ...] = ()
    fallen: bool = False
    falls: int = 0


@dataclass(frozen=True, slots=True)
class Ratio:
    """Speculation against standard decode. low, high: the two-sided 95% interval; below: the upper
    end of the 99% one. With fewer than five pairs there is none."""

    ratio: float = 1.0
    low: float = 0.0
    high: float = math.inf
    below: float = math.inf
    pairs: int = 0


def noted(ledger: Ledger, period: int, *, drafting: bool, tokens: float, standard: float) -> Ledger:
    """After a step of one cohort. drafting: what the step was for it, control apart. standard:
    tokens that standard decode is modelled to write for it in the step's time."""
    if period != ledger.period:
        ledger = replace(_closed(ledger), period=period, drafting=Side(), plain=Side())
    if drafting:
        return replace(ledger, drafting=ledger.drafting.plus(tokens, standard))
    return replace(ledger, plain=ledger.plain.plus(tokens, standard))


def ratio(ledger: Ledger) -> Ratio:
    """The estimate from the pairs that are finished."""
    logs = ledger.ratios
    if not logs:
        return Ratio()
    mean = statistics.fmean(logs)
    if len(logs) < INTERVAL_PAIRS:
        return Ratio(math.exp(mean), pairs=len(logs))
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    wide, wider = (student(normal, len(logs) - 1) * error for normal in (_NORMAL_95, _NORMAL_99))
    return Ratio(
        math.exp(mean),
        math.exp(mean - wide),
        math.exp(mean + wide),
        math.exp(mean + wider),
        len(logs),
    )


def judged(ledger: Ledger) -> Ledger:
    """Falls, or is let back in; what was measured before says nothing of what comes after."""
    now = ratio(ledger)
    if ledger.fallen:
        if now.pairs >= _pairs_back(ledger) and now.ratio >= 1.0:
            return replace(ledger, fallen=False, ratios=())
        return ledger
    if now.pairs >= LEAST_PAIRS and now.ratio < LEAST_RATIO and now.below < 1.0:
        return replace(ledger, fallen=True, falls=ledger.falls + 1, ratios=())
    return ledger


def student(normal: float, freedom: int) -> float:
    """The quantile of Student's law that belongs to the normal one, by its expansion in
    1/freedom (Abramowitz and Stegun, 26.7.5); within 1% from four degrees of freedom on."""
    z, n = normal, float(freedom)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def _pairs_back(ledger: Ledger) -> int:
    return min(LEAST_PAIRS // 2 << max(ledger.falls - 1, 0), MEMORY)


def _closed(ledger: Ledger) -> Ledger:
    speeds = ledger.drafting.speed, ledger.plain.speed
    if min(speeds) <= 0.0:
        return ledger
    newest = math.log(speeds[0] / speeds[1])
    return replace(ledger, ratios=(*ledger.ratios[1 - MEMORY :], newest))
