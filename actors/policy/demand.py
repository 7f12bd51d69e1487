"""What verifiers want of each pool of drafters: what keeps a pool up, and what wakes it.

A plain object beside the policy's other state, called by the same thread. It forgets a verifier
that has not reported for a while and a drafter whose lease is over, so nothing grows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import get_args

from pilotfish.v1 import control_pb2 as control
from pilotfish.v1 import demand_pb2 as pb
from policies import autoscale_pool as pools
from policies import exchange_rate
from policies.autoscale_pool import Pool, Want

MAX_POOLS = 64
MAX_DRAFTERS = 4096
MAX_VERIFIERS = 1024
LATE_MEMORY_S = 10.0
_WANTS = frozenset(get_args(Want))


@dataclass(slots=True)
class _Blocks:
    """Of one drafter, from all verifiers; fading."""

    late: float = 0.0
    used: float = 0.0
    at_s: float = 0.0

    def add(self, late: int, used: int, now_s: float) -> None:
        keep = math.exp(-max(now_s - self.at_s, 0.0) / LATE_MEMORY_S)
        self.late, self.used, self.at_s = self.late * keep + late, self.used * keep + used, now_s

    @property
    def share(self) -> float:
        whole = self.late + self.used
        return self.late / whole if whole > 0.0 else 0.0


@dataclass(slots=True)
class _Drafter:
    pool: str
    seen_s: float
    blocks: _Blocks = field(default_factory=_Blocks)


@dataclass(slots=True)
class _Verifier:
    """wants: by pool. counted: (late, used) blocks of each drafter as last reported."""

    seen_s: float
    wants: dict[str, Want] = field(default_factory=dict)
    counted: dict[str, tuple[int, int]] = field(default_factory=dict)


class Demand:
    """lease_s: a drafter that has not renewed for so long is gone. scaled: pools that may be at
    zero; nobody else is woken."""

    def __init__(
        self,
        scaled: Iterable[str] = (),
        *,
        lease_s: float = 3.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scaled = frozenset(scaled)
        self._lease_s = lease_s
        self._clock = clock
        self._pools: dict[str, Pool] = {}
        self._drafters: dict[str, _Drafter] = {}
        self._verifiers: dict[str, _Verifier] = {}

    def renewed(self, endpoint: control.DrafterEndpoint) -> pb.DrafterStanding:
        """A drafter lives; what it is told of itself."""
        now_s = self._clock()
        drafter = self._drafters.get(endpoint.drafter)
        if drafter is None and len(self._drafters) < MAX_DRAFTERS:
            drafter = self._drafters[endpoint.drafter] = _Drafter(endpoint.pool, now_s)
        if drafter is None:
            return pb.DrafterStanding(wanted=True)
        drafter.seen_s = now_s
        self._look()
        pool = self._pools.get(endpoint.pool)
        return pb.DrafterStanding(
            wanted=pool is None or pools.wanted(pool, now_s), late_share=drafter.blocks.share
        )

    def released(self, drafter: str) -> None:
        """A drafter has left."""
        self._drafters.pop(drafter, None)
        self._look()

    def heard(self, report: control.VerifierStatus) -> None:
        """A verifier's wishes, and what became of the blocks it asked for."""
        now_s = self._clock()
        verifier = self._verifiers.get(report.verifier)
        if verifier is None:
            if len(self._verifiers) >= MAX_VERIFIERS:
                return
            verifier = self._verifiers[report.verifier] = _Verifier(now_s)
        verifier.seen_s = now_s
        verifier.wants = {w.pool: _want(w.why) for w in report.wishes if w.why in _WANTS}
        counted: dict[str, tuple[int, int]] = {}
        for link in report.links:
            now = counted[link.drafter] = link.blocks_late, link.blocks_used
            before = verifier.counted.get(link.drafter, now)
            late, used = (max(a - b, 0) for a, b in zip(now, before, strict=True))
            if (drafter := self._drafters.get(link.drafter)) is not None:
                drafter.blocks.add(late, used, now_s)
                if used:  # whatever was said at the moment of the report
                    verifier.wants[drafter.pool] = "used"
        verifier.counted = counted
        self._look()

    def wakes(self) -> list[str]:
        """Pools without a drafter that are to have one, in the order of their names."""
        now_s = self._clock()
        found = []
        for name in sorted(self._scaled & self._pools.keys()):
            wake, self._pools[name] = pools.woken(self._pools[name], self._wants(name), now_s)
            if wake:
                found.append(name)
        return found

    def _look(self) -> None:
        """Each pool as it is now."""
        now_s = self._clock()
        self._drafters = {
            name: d for name, d in self._drafters.items() if now_s - d.seen_s < self._lease_s
        }
        forget_s = exchange_rate.forget_s(len(self._verifiers))
        self._verifiers = {
            name: v for name, v in self._verifiers.items() if now_s - v.seen_s < forget_s
        }
        up = [drafter.pool for drafter in self._drafters.values()]
        wished = [pool for verifier in self._verifiers.values() for pool in verifier.wants]
        for name in {*self._scaled, *up, *wished}:
            if name in self._pools or len(self._pools) < MAX_POOLS:
                old = self._pools.get(name, Pool())
                self._pools[name] = pools.heard(old, self._wants(name), up.count(name), now_s)

    def _wants(self, pool: str) -> list[Want]:
        return [v.wants[pool] for v in self._verifiers.values() if pool in v.wants]


def _want(why: str) -> Want:
    """Of a closed set, whatever a peer sends."""
    return "used" if why == "used" else "gain" if why == "gain" else "due"
