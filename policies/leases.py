"""Which drafters are alive: leases that run out unless renewed. The clock is an argument.

A table is a mapping from drafter name to lease. Functions return a new table and whether what
others see of it (names, addresses, capacities) has changed; a mere renewal has not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

MAX_LEASES = 4096
"""More drafters than any pool has: a peer that invents names cannot grow the table further."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One drafter's registration. `expires_s` is on the clock of whoever keeps the table. pool: the
    deployment that it is a replica of. draining: it is to go and takes no new session."""

    name: str
    address: str
    mechanism: str
    pid: int
    max_sessions: int
    pool: str = ""
    draining: bool = False
    expires_s: float = 0.0


Leases = Mapping[str, Lease]


def renew(leases: Leases, lease: Lease, *, now_s: float, ttl_s: float) -> tuple[Leases, bool]:
    """Register or renew: the same call, so a restarted policy learns its drafters by itself."""
    known = leases.get(lease.name)
    if known is None and len(leases) >= MAX_LEASES:
        return leases, False
    lease = replace(lease, expires_s=now_s + ttl_s)
    changed = known is None or replace(known, expires_s=lease.expires_s) != lease
    return {**leases, lease.name: lease}, changed


def release(leases: Leases, name: str) -> tuple[Leases, bool]:
    """A drafter that drains says so first; unknown names are ignored."""
    if name not in leases:
        return leases, False
    return {key: lease for key, lease in leases.items() if key != name}, True


def expire(leases: Leases, *, now_s: float) -> tuple[Leases, bool]:
    """Drop every lease that ended at or before `now_s`."""
    kept = {name: lease for name, lease in leases.items() if lease.expires_s > now_s}
    return (leases, False) if len(kept) == len(leases) else (kept, True)
