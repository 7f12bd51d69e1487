"""What a policy actor is started with."""

from __future__ import annotations

from dataclasses import dataclass

from policies.cohorts import DEFAULT


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """depth: the configured D, which drafters were started for: no live change may exceed it.
    expected_drafters: how many to wait for after a start. lease_s: a drafter that has not renewed
    for so long is gone. state_path: a file that its state outlives it in; empty keeps none.
    cohorts: every name that the rules can give. scaled: pools of drafters that may be at zero, and
    are woken."""

    depth: int
    colocated: bool = False
    expected_drafters: int = 0
    lease_s: float = 3.0
    state_path: str = ""
    cohorts: tuple[str, ...] = (DEFAULT,)
    scaled: tuple[str, ...] = ()
