"""Evidence about what is not being done, at a bounded price.

*Shadow* blocks are drafted and never verified: they cost the target nothing and what drafting takes
where it shares the target's device. A tenth of the steps may have one; what is not used is saved,
up to a burst of 16, for doubts and for a drafter that has come up, and the burst is there whole
after texts have changed. *Probes* are steps that draft what is not believed to be best; they are
for rules under which shadows say nothing, at most one step in a hundred, and half as often after
each that was not the first of its kind, until texts change.

The price of both is kept in one account, in seconds, with probes at their worst case, nothing
accepted. It never exceeds 0.5% of the time that has passed plus an allowance, one step and three
for each drafter that has to read a text first: that is the bound on the regret of exploring,
whatever the texts do. A shadow of a mechanism that even good luck would not bring to be chosen can
but notice that texts have changed: it waits until the account is below half of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b

SHADOW_SHARE = 0.10
SHADOW_EVERY = 12
"""Steps, of which one has a shadow while nothing is new; the rest is saved."""
BURST = 16.0
SHADOW_ROWS = 4
"""Requests that draft in a shadow."""
PROBE_SHARE = 0.01
LOSS_SHARE = 0.005
VAIN_SHARE = 0.0025
MAX_BACKOFF = 64
IMPRESSION_STEPS = 3
PROMPT_TOKENS = 64
"""Of a short prompt: a drafter that reads it in less than a quarter of a step reads for nothing."""


@dataclass(frozen=True, slots=True)
class Purse:
    """shadows, probes: steps that may be used now. spent_s: what exploring has cost, elapsed_s: of
    so much time. backoff: how much rarer probes are than they may be."""

    shadows: float = BURST
    probes: float = 0.0
    spent_s: float = 0.0
    elapsed_s: float = 0.0
    backoff: int = 1


def passed(purse: Purse, took_s: float, steps: int = 1) -> Purse:
    """After a step, or several that took so long together."""
    return replace(
        purse,
        shadows=min(purse.shadows + SHADOW_SHARE * steps, BURST),
        probes=min(purse.probes + PROBE_SHARE * steps / purse.backoff, 1.0),
        elapsed_s=purse.elapsed_s + took_s,
    )


def allowed_s(step_s: float, read_s: Sequence[float]) -> float:
    """What exploring may take before it has earned anything. step_s: of a step of standard decode;
    read_s: of each drafter, seconds of the target's thread for a token that it reads. One whose
    reading counts gets a first impression of one text out of it."""
    readers = sum(PROMPT_TOKENS * each > step_s / 4 for each in read_s)
    return step_s * (1 + IMPRESSION_STEPS * readers)


def affords(purse: Purse, price_s: float, allowed_s: float) -> bool:
    """Whether the account bears another `price_s`."""
    return purse.spent_s + price_s <= LOSS_SHARE * purse.elapsed_s + allowed_s


def steps_until(
    purse: Purse, price_s: float, allowed_s: float, step_s: float, share: float = LOSS_SHARE
) -> int:
    """Steps of so many seconds until this share of the time bears `price_s`; 0: it does."""
    missing_s = purse.spent_s + price_s - share * purse.elapsed_s - allowed_s
    return max(0, math.ceil(missing_s / (share * step_s)))


def turn(seed: str, step: int) -> bool:
    """Whether this step has a shadow while nothing is new: one in each stretch of steps has, at a
    place that a hash draws. No rhythm of traffic can fall in step with that, and a change waits for
    its first shadow half as long as it would with a draw for each step."""
    stretch, place = divmod(step, SHADOW_EVERY)
    return place == _drawn(seed, stretch)


@lru_cache(maxsize=64)
def _drawn(seed: str, stretch: int) -> int:
    digest = blake2b(f"shadow:{seed}:{stretch}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % SHADOW_EVERY


def shadowed(
    purse: Purse,
    *,
    urgent: bool,
    due: bool,
    price_s: float,
    allowed_s: float,
    vain: Callable[[], bool] = lambda: False,
) -> Purse | None:
    """The purse after a shadow in this step; None where there is to be none. due: it is a shadow's
    turn. vain: whether its mechanism would not be chosen at its best; asked only where that
    matters."""
    if not (urgent or due) or purse.shadows < 1.0 or not affords(purse, price_s, allowed_s):
        return None
    dear = purse.spent_s + price_s > VAIN_SHARE * purse.elapsed_s
    if dear and price_s and vain():
        return None
    return replace(purse, shadows=purse.shadows - 1.0, spent_s=purse.spent_s + price_s)


def probed(purse: Purse, *, price_s: float, allowed_s: float, known: bool) -> Purse | None:
    """The purse after a probe in this step; None where there is to be none. known: there was
    evidence before, so that this probe may turn out to have been in vain."""
    if purse.probes < 1.0 or not affords(purse, price_s, allowed_s):
        return None
    backoff = min(2 * purse.backoff, MAX_BACKOFF) if known else purse.backoff
    return replace(purse, probes=0.0, spent_s=purse.spent_s + price_s, backoff=backoff)


def charged(purse: Purse, seconds: float) -> Purse:
    """Exploring took so much more than its price, or less."""
    return replace(purse, spent_s=max(0.0, purse.spent_s + seconds))


def renewed(purse: Purse) -> Purse:
    """Texts have changed: probes are as frequent as they may be, and there are as many shadows as
    were ever saved, whatever doubts have used of them."""
    return replace(purse, shadows=BURST, backoff=1)


def worst_loss_s(probe_s: float, writers: int, rate: float) -> float:
    """Seconds that a step of `probe_s` loses if nothing of its drafts is accepted, against what is
    done now at `rate` tokens per second."""
    return max(0.0, probe_s - writers / rate)
