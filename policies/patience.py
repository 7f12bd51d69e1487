"""Whether a request is asked for a block in each round, or left alone for a while.

Asking takes time, whatever comes of it. So what blocks have saved of late is kept in mind, for each
request and for all of a mechanism: a request is asked while its blocks are expected to save more
than asking takes. One of which that is not so is asked a few times in a row nevertheless, and after
each block that pays for the asks in vain before it, because texts are copied in runs. Then it
rests: it is asked in one round of `every`, and so finds out when its text can be foretold. Of a
drafter that has been of no use to anybody of late a new request is asked once, and one that rests
ever less.
"""

from __future__ import annotations

from dataclasses import dataclass

PATIENCE = 4
"""Asks in vain, in a row, after which a request rests;"""
REST = 8
"""it is asked in one round of so many then,"""
LONGEST = 64
"""and of a drafter that is of no use to anybody at last in one of so many."""
TRIED = 2
"""Asks in vain after which the rest is twice as long."""
UNKNOWN = 12.0
"""Asks after which it is believed what a mechanism brings to all."""
MEMORY, LONG_MEMORY = 12.0, 96.0
"""Asks that a request remembers, on average, and all together."""
BARREN = 0.1
"""Of what asking takes: where all together save less, hardly anybody's blocks ever pay."""
WEIGHT = 8.0
"""Asks' worth of belief that a request is like others."""


@dataclass(frozen=True, slots=True)
class Record:
    """What asks have brought. gained_s: seconds that verified rows saved, their own time taken off;
    below zero where they cost more. Of a request those that were expected, of all those that came
    true."""

    gained_s: float = 0.0
    asks: float = 0.0


@dataclass(frozen=True, slots=True)
class Rest:
    """Of one request. every: while it rests, one round of so many asks it. tried: such rounds in
    vain, since that last changed."""

    every: int = REST
    tried: int = 0


NOTHING, AWAKE = Record(), Rest()


def noted(record: Record, gain_s: float, memory: float) -> Record:
    """After another ask."""
    keep = 1.0 - 1.0 / memory
    return Record(record.gained_s * keep + gain_s, record.asks * keep + 1.0)


def doubted(everyone: Record) -> Record:
    """Texts or batch have changed: a few asks may say otherwise."""
    keep = min(1.0, UNKNOWN / max(everyone.asks, 1.0))
    return Record(everyone.gained_s * keep, everyone.asks * keep)


def known(everyone: Record) -> bool:
    """Whether what a mechanism has brought to all is believed."""
    return everyone.asks >= UNKNOWN - 0.5


def barren(everyone: Record, price_s: float) -> bool:
    """Whether it is of next to no use to anybody; not where nobody knows what asking takes."""
    if price_s <= 0.0 or not known(everyone):
        return False
    return everyone.gained_s <= BARREN * price_s * everyone.asks


def asks(own: Record, everyone: Record, price_s: float, vain: int) -> bool:
    """Whether a request is asked in each round. vain: its last asks that did not pay."""
    if vain < (1 if barren(everyone, price_s) else PATIENCE):
        return True
    mean_s = everyone.gained_s / max(everyone.asks, 1.0)
    return own.gained_s + WEIGHT * mean_s >= price_s * (own.asks + WEIGHT) > 0.0


def pays(gain_s: float, price_s: float, vain: int) -> bool:
    """Whether a block that saves the step `gain_s` was worth asking for, each ask at `price_s`,
    after so many in vain. Of a long rest not all has to be earned at once."""
    return gain_s > 0.0 and gain_s >= price_s * min(vain + 1, PATIENCE)


def tried(rest: Rest) -> Rest:
    """Asked while it rested, and in vain."""
    if rest.tried + 1 < TRIED:
        return Rest(rest.every, rest.tried + 1)
    return Rest(min(2 * rest.every, LONGEST))
