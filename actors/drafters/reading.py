"""What it takes a drafter to read a text that is new to it, measured before it serves.

A drafter reads a request's whole text before its first block, which may take it longer than a
hundred blocks; the policy looks at requests of strangers by that price. Two made-up prompts, one
longer than the other, are read to the first block: what the longer one takes more is the price of
its tokens more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from actors.contracts import Drafter
from actors.drafters.timing import PROMPT, WARMING, MadeUp

log = logging.getLogger(__name__)

MORE = 112
"""Tokens of the longer prompt beyond `PROMPT`."""
TIMES = 2
"""Each prompt is read; the better time counts."""


def read_s(drafter: Drafter, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds a token; 0 where it cannot be told. Never raises."""
    longest = PROMPT + MORE + 1
    if 0 < drafter.info.max_context < longest:
        return 0.0
    try:
        took = [
            min(_reads(drafter, length, clock) for _ in range(TIMES))
            for length in (PROMPT, PROMPT + MORE)
        ]
    except Exception as error:
        log.warning("what reading takes %s is not known: %r", type(drafter).__name__, error)
        return 0.0
    return max(0.0, took[1] - took[0]) / MORE


def _reads(drafter: Drafter, length: int, clock: Callable[[], float]) -> float:
    """Seconds to the first block after a prompt of so many tokens."""
    made = MadeUp(drafter, 1, length)
    opened = [made.opening(key) for key in made.keys]
    try:
        began_s = clock()
        drafter.open(opened)
        for _ in range(WARMING):
            if not any(p.cold for p in drafter.propose(made.requests(1))):
                break
        return clock() - began_s
    finally:
        for key in made.keys:
            with suppress(Exception):
                drafter.close(key)
