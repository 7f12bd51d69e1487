"""What drafting brings, by cohort and mechanism: acceptance, block lengths, and whether both still
hold.

One block is one observation of every position that was decided (a chain: what follows a rejected
token is unknown, not rejected), so a mechanism and a depth are never arms of their own: drafting D
tokens says all about every shorter block, and shadow blocks, scored against what the target went
on to write, say the same about mechanisms that are not in use. Evidence fades with steps, whether
or not the mechanism was used in them, and with the requests it came of: a new one's text is another
text. A cohort with little evidence leans on what its texts have brought so far, and on all cohorts
together before it has had many. When the text changes (`policies.change`), what is known of the
cohort is all but dropped, and what came with the change is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import mul
from typing import Literal

from policies.acceptance import Acceptance, added, faded, summed, survival
from policies.change import Cusum, calmed, watched

Rule = Literal["greedy", "coupled", "rejection", "block"]
Key = tuple[str, str]
"""(cohort, mechanism)."""
Estimates = Mapping[Key, "Estimate"]

EVERYONE = ""
"""The cohort that every block counts in."""
MEMORY = 400.0
"""Steps that evidence of a cohort lasts, on average, and of everyone:"""
LONG_MEMORY = 4000.0
WIDE_WEIGHT = 4.0
"""Blocks' worth of belief in these, for a cohort that has few blocks of its own."""
TEXT_BLOCKS = 8.0
"""What a text counts in its cohort's past, however much was drafted for it: the ones for which
drafting pays would else count most."""
PAST_TEXTS = 8.0
"""Texts that a cohort's past lasts, on average."""
PAST_BLOCKS = 2.0 * TEXT_BLOCKS
"""With so many behind it, a cohort leans on its own past and not on everyone's."""
KEPT_BLOCKS = 2.0
"""Of the evidence before a change, at most so many blocks are kept."""
NEWEST = 8
"""Readings of blocks that are kept one by one: they may turn out to be all that still holds."""
ENOUGH_BLOCKS = 4.0
"""With fewer blocks, a mechanism is not believed in at all (no evidence, no speculation)."""
_LEAST_VARIANCE = 0.02  # of a block's right tokens: rates near 0 and 1 are never quite so sure


@dataclass(frozen=True, slots=True)
class Scored:
    """One block after the fact. asked: tokens that were wanted; size: that came (0: none did, in
    time); right: how many first ones were accepted or, in a block that was not verified, are what
    the target wrote. verified: whether the target saw it."""

    asked: int
    size: int
    right: int
    verified: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.size <= self.asked or self.asked < 1:
            raise ValueError(f"not a block: {self}")


Readings = tuple[tuple[int, tuple[Scored, ...]], ...]
"""(step, blocks), oldest first."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """By depth 1, 2, …: survive is P(the first k tokens are all accepted | they came), reach is
    P(k tokens came). Neither rises."""

    survive: tuple[float, ...]
    reach: tuple[float, ...]

    @property
    def right(self) -> float:
        """Expected accepted tokens of the longest block."""
        return math.fsum(map(mul, self.survive, self.reach))


@dataclass(frozen=True, slots=True)
class Best:
    """What the text for which a mechanism did best of late let expect, and when it last did."""

    outlook: Outlook = field(default_factory=lambda: Outlook((), ()))
    step: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """accept: of the tokens that came. reach: of the tokens asked for, which came."""

    accept: Acceptance = field(default_factory=Acceptance)
    reach: Acceptance = field(default_factory=Acceptance)

    @property
    def blocks(self) -> float:
        """How much it rests on."""
        return self.reach.decided[0] if self.reach.decided else 0.0

    def faded(self, keep: float) -> Counts:
        """The same rates by a share of the evidence."""
        return Counts(faded(self.accept, keep), faded(self.reach, keep))

    def plus(self, blocks: Sequence[Scored]) -> Counts:
        """With the blocks of a step."""
        return Counts(
            added(self.accept, [(block.size, block.right) for block in blocks if block.size]),
            added(self.reach, [(block.asked, block.size) for block in blocks]),
        )

    def summed(self, other: Counts) -> Counts:
        """The evidence of both."""
        return Counts(summed(self.accept, other.accept), summed(self.reach, other.reach))


@dataclass(frozen=True, slots=True)
class Estimate:
    """accept: of the tokens that came. reach: of the tokens asked for, which came. watch: whether
    blocks still do as expected. step: when it was last added to. newest: the last readings, whose
    blocks are in the counts. best, and past, of the texts that are gone, each as `TEXT_BLOCKS`
    blocks, survive every change of text."""

    accept: Acceptance = field(default_factory=Acceptance)
    reach: Acceptance = field(default_factory=Acceptance)
    watch: Cusum = field(default_factory=Cusum)
    step: int = 0
    newest: Readings = field(default=(), compare=False, repr=False)
    best: Best = field(default_factory=Best, compare=False, repr=False)
    past: Counts = field(default_factory=Counts, compare=False, repr=False)


def shadows_count(rule: Rule) -> bool:
    """Whether blocks that were not verified say anything under this rule."""
    return rule in ("greedy", "coupled")


def fair(blocks: Iterable[Scored], rule: Rule) -> list[Scored]:
    """Those that may be counted. Under `greedy` and `coupled` the target's token is a function of
    what precedes it, so agreement is the acceptance event, verified or not. Under `rejection` and
    `block` it is drawn anew: agreement is a rarer event than acceptance, and only verdicts count.
    """
    return [block for block in blocks if block.verified or shadows_count(rule)]


def learnt(
    estimates: Estimates, key: Key, blocks: Sequence[Scored], step: int
) -> tuple[dict[Key, Estimate], bool]:
    """After the blocks of one step; True when the cohort's text has changed its nature."""
    cohort, mechanism = key
    result = dict(estimates)
    if not blocks:
        return result, False
    old = result.get(key, Estimate(step=step))
    expected = outlook(estimates, *key, _longest(blocks), step)
    known = evidence(estimates, *key, step)
    watch, changed = _watch(old.watch, expected, known, blocks)
    newest = (*old.newest[1 - NEWEST :], (step, tuple(blocks)))
    better = known >= ENOUGH_BLOCKS and expected.right >= _best(old, step).right
    best = Best(expected, step) if better else old.best
    now = _with(_aged(old, step, MEMORY), blocks, watch, newest)
    result[key] = replace(now, best=best)
    everyone = (EVERYONE, mechanism)
    wide = _aged(result.get(everyone, Estimate(step=step)), step, LONG_MEMORY)
    result[everyone] = _with(wide, blocks, wide.watch)
    if not changed:
        return result, False
    return forgotten(result, cohort, newest[-min(changed, NEWEST)][0]), True


def forgotten(estimates: Estimates, cohort: str, since: float = math.inf) -> dict[Key, Estimate]:
    """What was known of a cohort's text before the step `since` is all but dropped, for every
    mechanism: texts that change for one change for all. What has come since is kept whole."""
    result = dict(estimates)
    for key, old in estimates.items():
        if key[0] == cohort:
            lately = [block for at, blocks in old.newest if at >= since for block in blocks]
            keep = min(1.0, max(KEPT_BLOCKS - len(lately), 0.0) / max(_blocks(old), 1e-9))
            less = replace(old, accept=faded(old.accept, keep), reach=faded(old.reach, keep))
            result[key] = _with(less, lately, calmed(old.watch), old.newest)
    return result


def turned(estimates: Estimates, cohort: str, share: float) -> dict[Key, Estimate]:
    """So large a share of the cohort's requests is new: as much of what is known is of texts that
    are gone, and the cohort's past says more of the new ones."""
    result = dict(estimates)
    for key, old in estimates.items():
        if key[0] == cohort:
            keep = max(1.0 - share, min(1.0, KEPT_BLOCKS / max(_blocks(old), 1e-9)))
            accept, reach = faded(old.accept, keep), faded(old.reach, keep)
            past = _followed(old, share)
            result[key] = replace(
                old, accept=accept, reach=reach, watch=calmed(old.watch), past=past
            )
    return result


def _followed(old: Estimate, share: float) -> Counts:
    """The past, with so large a share of what was known of the present."""
    now = _counts(old)
    if now.blocks <= KEPT_BLOCKS:
        return old.past
    gone = now.faded(share * TEXT_BLOCKS / now.blocks)
    return old.past.faded(1.0 - share / PAST_TEXTS).summed(gone)


def outlook(
    estimates: Estimates,
    cohort: str,
    mechanism: str,
    depth: int,
    step: int,
    sigmas: float = 0.0,
) -> Outlook:
    """What a block of up to `depth` tokens is expected to bring in this cohort now."""
    own = _aged(estimates.get((cohort, mechanism), Estimate(step=step)), step, MEMORY)
    wide = _wide(estimates, own, mechanism)
    return Outlook(
        survival(own.accept, depth, wide.accept, WIDE_WEIGHT, sigmas, carry=True),
        survival(own.reach, depth, wide.reach, WIDE_WEIGHT, sigmas, carry=True),
    )


def best(estimates: Estimates, cohort: str, mechanism: str, step: int) -> Outlook:
    """Of the cohort's texts of late, what the one for which the mechanism did best let expect:
    texts of a cohort differ, and one like it may come again."""
    return _best(estimates.get((cohort, mechanism), Estimate()), step)


def _best(estimate: Estimate, step: int) -> Outlook:
    return estimate.best.outlook if step - estimate.best.step < LONG_MEMORY else Best().outlook


def evidence(estimates: Estimates, cohort: str, mechanism: str, step: int) -> float:
    """How much an outlook rests on, in blocks: the cohort's own, or what everyone's count for."""
    own = estimates.get((cohort, mechanism), Estimate(step=step))
    faded_by = math.exp(-max(step - own.step, 0) / MEMORY)
    return max(_blocks(own) * faded_by, min(_wide(estimates, own, mechanism).blocks, WIDE_WEIGHT))


def _wide(estimates: Estimates, own: Estimate, mechanism: str) -> Counts:
    """What a cohort with few blocks leans on."""
    if own.past.blocks >= PAST_BLOCKS:
        return own.past
    return _counts(estimates.get((EVERYONE, mechanism), Estimate()))


def _counts(estimate: Estimate) -> Counts:
    return Counts(estimate.accept, estimate.reach)


def _blocks(estimate: Estimate) -> float:
    return _counts(estimate).blocks


def _longest(blocks: Sequence[Scored]) -> int:
    return max(block.asked for block in blocks)


def _aged(estimate: Estimate, step: int, memory: float) -> Estimate:
    passed = step - estimate.step
    if passed <= 0:
        return estimate
    keep = math.exp(-passed / memory)
    accept, reach = faded(estimate.accept, keep), faded(estimate.reach, keep)
    return replace(estimate, accept=accept, reach=reach, step=step)


def _with(
    estimate: Estimate, blocks: Sequence[Scored], watch: Cusum, newest: Readings = ()
) -> Estimate:
    counts = _counts(estimate).plus(blocks)
    return replace(estimate, accept=counts.accept, reach=counts.reach, watch=watch, newest=newest)


def _watch(
    state: Cusum, expected: Outlook, known: float, blocks: Sequence[Scored]
) -> tuple[Cusum, int]:
    """The step's right tokens against their expectation. Its doubt is that of the blocks, and that
    of the expectation itself, which rests on `known` blocks."""
    means, squares = _moments(expected)
    mean = variance = 0.0
    for block in blocks:
        last = min(block.asked, len(means)) - 1
        mean += means[last]
        variance += max(squares[last] - means[last] ** 2, _LEAST_VARIANCE)
    variance *= 1.0 + len(blocks) / max(known, 1.0)
    right = sum(min(block.right, len(means)) for block in blocks)
    return watched(state, (right - mean) / math.sqrt(variance))


def _moments(expected: Outlook) -> tuple[list[float], list[float]]:
    """Mean and mean square of a block's right tokens, by the depth it was asked for."""
    means: list[float] = []
    squares: list[float] = []
    mean = square = 0.0
    for k, (alive, came) in enumerate(zip(expected.survive, expected.reach, strict=True), 1):
        mean += alive * came
        square += (2 * k - 1) * alive * came
        means.append(mean)
        squares.append(square)
    return means, squares
