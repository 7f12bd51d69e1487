"""How many replicas of a deployment there are: up quickly, down slowly, and never to and fro.

A look gives two numbers: with fewer than `add` replicas something would be missed, more than `keep`
are of no use; between them any count is right. The count rises to what every look of the newest
`upscale_delay_s` would have added at least, and falls to what some look of the newest
`downscale_delay_s` would have kept at most. So

- once looks stay the same the count moves in one direction alone, and stops when the delays are
  over;
- a fall comes no sooner than `downscale_delay_s` after the rise before it, a rise no sooner than
  `upscale_delay_s` after the fall before it, whatever the load does.

The bands (`keep` above `add`) take care of loads that depend on the count itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

BLIND_S = 30.0
"""After so long without a look, what was seen before it says nothing any more."""
_EPSILON_S = 1e-6  # differences of clock readings are not exact

Seen = tuple[tuple[float, int], ...]
"""(time, value) of looks, oldest first: those that are the extreme of some window that ends now."""


@dataclass(frozen=True, slots=True)
class Look:
    """add <= keep."""

    add: int
    keep: int

    def __post_init__(self) -> None:
        if not 0 <= self.add <= self.keep:
            raise ValueError(f"not a look: {self}")


@dataclass(frozen=True, slots=True)
class Limits:
    """downscale_to_zero_delay_s: for the last replica; it may be shorter or longer than the other.
    Names are Serve's."""

    min_replicas: int
    max_replicas: int
    upscale_delay_s: float
    downscale_delay_s: float
    downscale_to_zero_delay_s: float

    def within(self, count: int) -> int:
        return max(self.min_replicas, min(self.max_replicas, count))


@dataclass(frozen=True, slots=True)
class Memory:
    """since_s: from when on there are looks without a gap; newest_s: the last one. lows: of `add`,
    values rise; highs: of `keep`, values fall. So neither is longer than there are counts."""

    since_s: float = 0.0
    newest_s: float = float("-inf")
    lows: Seen = field(default=())
    highs: Seen = field(default=())


def steadied(
    memory: Memory, look: Look, count: int, now_s: float, limits: Limits
) -> tuple[int, Memory]:
    """The count from now on, where it is `count` at `now_s`."""
    memory = _noted(memory, look, now_s, limits)
    count = limits.within(count)
    least = _extreme(memory, memory.lows, now_s, limits.upscale_delay_s)
    if least is not None and least > count:
        return limits.within(least), memory
    most = _extreme(memory, memory.highs, now_s, limits.downscale_delay_s)
    if most is not None and max(most, 1) < count:
        return limits.within(max(most, 1)), memory
    if count == 1 and _extreme(memory, memory.highs, now_s, limits.downscale_to_zero_delay_s) == 0:
        return limits.within(0), memory
    return count, memory


def _noted(memory: Memory, look: Look, now_s: float, limits: Limits) -> Memory:
    """With one more look; those that no window reaches are dropped."""
    if now_s - memory.newest_s > BLIND_S or now_s < memory.newest_s:
        memory = Memory(since_s=now_s)
    reach_s = max(limits.downscale_delay_s, limits.downscale_to_zero_delay_s)
    lows = [(at, value) for at, value in memory.lows if value < look.add]
    highs = [(at, value) for at, value in memory.highs if value > look.keep]
    return replace(
        memory,
        newest_s=now_s,
        lows=_recent([*lows, (now_s, look.add)], now_s - limits.upscale_delay_s),
        highs=_recent([*highs, (now_s, look.keep)], now_s - reach_s),
    )


def _recent(seen: list[tuple[float, int]], from_s: float) -> Seen:
    return tuple(entry for entry in seen if entry[0] >= from_s - _EPSILON_S)


def _extreme(memory: Memory, seen: Seen, now_s: float, window_s: float) -> int | None:
    """Of the looks of the newest `window_s`; None while there have not been looks for so long."""
    if now_s - memory.since_s < window_s - _EPSILON_S:
        return None
    return next(value for at, value in seen if at >= now_s - window_s - _EPSILON_S)
